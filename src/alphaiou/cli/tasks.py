"""Commands with subcommands, such as ``alphaiou data check``."""

from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from typing import Annotated, Any, Union

import tyro

#: The options of a command and the function that runs it.
Task = tuple[type, Callable[[Any], int]]


def command_of(summary: str, tasks: Mapping[str, Task]) -> Task:
    """Build a command whose first argument selects one of several subcommands.

    Args:
        summary: The description in the help text.
        tasks: The subcommands by name.
    """
    kinds = union_of({name: kind for name, (kind, _) in tasks.items()})
    command = make_dataclass("Command", [("task", Annotated[kinds, tyro.conf.arg(name="")])])
    command.__doc__ = summary
    functions = dict(tasks.values())
    return command, lambda chosen: functions[type(chosen.task)](chosen.task)


def union_of(kinds: Mapping[str, type]) -> Any:  # noqa: ANN401 - a form that tyro reads
    """Return the union type from which tyro builds the subcommands."""
    named = (Annotated[kind, tyro.conf.subcommand(name)] for name, kind in kinds.items())
    return Union[tuple(named)]  # noqa: UP007
