"""Commands that are made of others, such as ``alphaiou data check``."""

from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from typing import Annotated, Any, Union

import tyro

#: Options, and what is done with them.
Task = tuple[type, Callable[[Any], int]]


def command_of(summary: str, tasks: Mapping[str, Task]) -> Task:
    """The command that does the one of some tasks that its first argument names.

    Args:
        summary: What the help says of the command.
        tasks: By name.
    """
    kinds = union_of({name: kind for name, (kind, _) in tasks.items()})
    command = make_dataclass("Command", [("task", Annotated[kinds, tyro.conf.arg(name="")])])
    command.__doc__ = summary
    functions = dict(tasks.values())
    return command, lambda chosen: functions[type(chosen.task)](chosen.task)


def union_of(kinds: Mapping[str, type]) -> Any:  # noqa: ANN401 - a form that tyro reads
    """Any of some options, chosen by their names."""
    named = (Annotated[kind, tyro.conf.subcommand(name)] for name, kind in kinds.items())
    return Union[tuple(named)]  # noqa: UP007
