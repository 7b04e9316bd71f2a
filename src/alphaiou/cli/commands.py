"""The commands. Each is a frozen dataclass, which tyro turns into a parser, and a function."""

import difflib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from alphaiou import __version__
from alphaiou.cli import UsageError
from alphaiou.cli.compare import Compare, run_compare
from alphaiou.cli.completion import Completion, run_completion
from alphaiou.cli.curves import Curves, run_curves
from alphaiou.cli.data import DATA
from alphaiou.cli.doctor import Doctor, run_doctor
from alphaiou.cli.evaluate import Evaluate, run_eval
from alphaiou.cli.explore import Explore, run_explore
from alphaiou.cli.paper import PAPER
from alphaiou.cli.predict import Predict, run_predict
from alphaiou.cli.simulate import Simulate, run_simulate
from alphaiou.cli.train import run_train, train_command

#: A dataclass, or a function that returns it if importing the dataclass needs torch.
Options = type | Callable[[], type]

COMMANDS: dict[str, tuple[Options, Callable[[Any], int]]] = {
    "compare": (Compare, run_compare),
    "train": (train_command, run_train),
    "predict": (Predict, run_predict),
    "data": DATA,
    "eval": (Evaluate, run_eval),
    "explore": (Explore, run_explore),
    "paper": PAPER,
    "curves": (Curves, run_curves),
    "simulate": (Simulate, run_simulate),
    "doctor": (Doctor, run_doctor),
    "completion": (Completion, run_completion),
}


def run(arguments: Sequence[str]) -> int:
    """Run the command named by the first argument with the remaining arguments."""
    name, *options = arguments or ["--help"]
    if name in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return 0
    if name == "--version":
        sys.stdout.write(f"alphaiou {__version__}\n")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}"
        raise UsageError(f"no command {name!r}; {hint}")
    options_of, function = COMMANDS[name]
    kind = options_of if isinstance(options_of, type) else options_of()
    try:
        command: object = tyro.cli(
            kind, prog=f"alphaiou {name}", args=options, config=(tyro.conf.FlagCreatePairsOff,)
        )
    except SystemExit as stop:  # after --help, or after a message about invalid options
        return stop.code if isinstance(stop.code, int) else 1
    return function(command)


def overview() -> str:
    """Return the help text of the program: every command with its summary line."""
    width = max(map(len, COMMANDS))
    lines = [
        f"  {name:{width}}  {(kind.__doc__ or '').splitlines()[0]}"
        for name, (kind, _) in COMMANDS.items()
    ]
    return "\n".join(
        (
            "usage: alphaiou COMMAND [options]",
            "",
            "Alpha-IoU losses for bounding-box regression.",
            "",
            "commands:",
            *lines,
            "",
            "alphaiou COMMAND --help describes a command; --version prints the version.",
            "",
        )
    )
