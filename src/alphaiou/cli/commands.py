"""The commands. Each is a frozen dataclass, which tyro turns into a parser, and a function."""

import difflib
import io
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
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
from alphaiou.cli.export import Export, run_export
from alphaiou.cli.paper import PAPER
from alphaiou.cli.predict import Predict, run_predict
from alphaiou.cli.simulate import Simulate, run_simulate
from alphaiou.cli.train import run_train, train_command
from alphaiou.cli.tune import Tune, run_tune

#: A dataclass; or a function from the arguments to it, if it depends on them or needs torch.
Options = type | Callable[[Sequence[str]], type]

COMMANDS: dict[str, tuple[Options, Callable[[Any], int]]] = {
    "compare": (Compare, run_compare),
    "train": (train_command, run_train),
    "tune": (Tune, run_tune),
    "predict": (Predict, run_predict),
    "export": (Export, run_export),
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
        raise UsageError(_no_command(name, COMMANDS))
    options_of, function = COMMANDS[name]
    kind = options_of if isinstance(options_of, type) else options_of(options)
    try:
        command = _parsed(kind, name, options)
    except SystemExit as stop:  # after --help, or after a message about invalid options
        return stop.code if isinstance(stop.code, int) else 1
    return function(command)


def _parsed(kind: type, name: str, options: Sequence[str]) -> object:
    """Parse the options of a command.

    Messages about unknown options are ours: tyro repeats the nearest option for each subcommand,
    and names commands that do not exist.

    Raises:
        UsageError: If an option or a subcommand is unknown.
        SystemExit: After the help, or after a message of tyro.
    """
    settings: dict[str, Any] = {
        "prog": f"alphaiou {name}",
        "args": list(options),
        "config": (tyro.conf.FlagCreatePairsOff,),
    }
    try:
        with redirect_stderr(io.StringIO()):
            command, unknown = tyro.cli(kind, **settings, return_unknown_args=True)
    except SystemExit as stop:
        if not stop.code:
            raise
        command, unknown = None, None
    if unknown == []:
        return command
    problem = _unknown(kind, name, options, unknown or [])
    if problem:
        raise UsageError(problem)
    return tyro.cli(kind, **settings)  # which prints its message


def _unknown(kind: type, name: str, options: Sequence[str], unknown: Sequence[str]) -> str | None:
    """Describe the first unknown option or subcommand, with the nearest one; None without any.

    Args:
        kind: The options of the command.
        name: Its name.
        options: Its arguments.
        unknown: Those that are known to be wrong; none if others are wrong as well.
    """
    subcommands, offered = _offered(kind, name, [])
    chosen = next((token for token in options if token in subcommands), None)
    if subcommands and chosen is None and (unknown or options)[:1] == options[:1]:
        token = next(iter(options), "-")
        if not token.startswith("-"):
            known = [f"{name} {other}" for other in subcommands]
            return _no_command(f"{name} {token}", known)
    if chosen is not None:
        name, whole = f"{name} {chosen}", name
        offered = _offered(kind, whole, [chosen])[1]
    for token in unknown or options:
        option = token.partition("=")[0].replace("_", "-")
        if not token.startswith("--") or option in offered:
            continue
        others = [
            other
            for other in subcommands
            if other != chosen and option in _offered(kind, name, [other])[1]
        ]
        hint = f"; it is one of {', '.join(others)}." if others else _near(option, offered) or "."
        return f"{name} has no option {option}{hint} See alphaiou {name} --help"
    if unknown:
        return f"{name}: unexpected argument {unknown[0]!r}. See alphaiou {name} --help"
    return None


def _offered(kind: type, name: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the subcommands and the options in the help of a command."""
    text = io.StringIO()
    try:
        with redirect_stdout(text):
            tyro.cli(
                kind,
                prog=f"alphaiou {name}",
                args=[*arguments, "--help"],
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit:
        pass
    usage, _, rest = text.getvalue().partition("\n\n")
    choices = re.search(r"\{([^}]*)\}\]?\s*$", usage)
    subcommands = re.split(r"[,\s]+", choices[1]) if choices else []
    return subcommands, re.findall(r"(?<![\w.-])--[a-z][\w.-]*[\w]", rest)


def _no_command(name: str, known: Iterable[str]) -> str:
    """Return the message about an unknown command."""
    hint = _near(name, known) or f"; commands: {', '.join(known)}"
    return f"no command {name!r}{hint}"


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


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
