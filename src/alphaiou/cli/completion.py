"""``alphaiou completion``."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import tyro


@dataclass(frozen=True)
class Completion:
    """Print a script that completes commands and options in a shell.

    bash: alphaiou completion bash > ~/.local/share/bash-completion/completions/alphaiou
    zsh: alphaiou completion zsh > a folder of $fpath, as _alphaiou
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh"]]
    """The shell."""


def run_completion(command: Completion) -> int:
    """Print the script."""
    from alphaiou.cli.commands import COMMANDS

    kinds = (
        Annotated[kind if isinstance(kind, type) else kind(), tyro.conf.subcommand(name)]
        for name, (kind, _) in COMMANDS.items()
    )
    every: Any = Union[tuple(kinds)]  # noqa: UP007
    try:
        tyro.cli(every, prog="alphaiou", args=["--tyro-print-completion", command.shell])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 1
