"""A function of a framework with another function of its module exchanged, for one model alone.

The frameworks call their box loss by a name in their module. To set that name would change every
model of the process; here a copy of the calling function looks the name up elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch

from alphaiou.errors import AlphaIoUError
from alphaiou.integrations.handle import Replacement


class UnsupportedVersionError(AlphaIoUError):
    """The installed version of a framework has no place, or another one, for the box loss."""


def rewired(
    function: Callable[..., Any], names: Mapping[str, object], *, known: str
) -> Callable[..., Any]:
    """A copy of a function that finds these values under the names; the original is untouched.

    Args:
        function: A Python function; of a decorated one, what the decorator got.
        names: Names of its module that it uses, and what they mean to the copy.
        known: The versions this is written for, for the message where a name is not used.

    Raises:
        UnsupportedVersionError: The function does not use one of the names.

    Examples:
        >>> def name():
        ...     return "Ann"
        >>> def greeting():
        ...     return f"Hello {name()}"
        >>> rewired(greeting, {"name": lambda: "Bob"}, known="this page")()
        'Hello Bob'
    """
    original: Any = inspect.unwrap(function)
    code = original.__code__
    for name in names:
        if name not in code.co_names or name not in original.__globals__:
            raise UnsupportedVersionError(
                f"{original.__module__}.{original.__qualname__} no longer uses {name!r}, the place "
                f"where the box loss goes in; this version of alphaiou knows {known}"
            )
    # A code object of its own: torch.compile keeps there what it knows of a function, and when it
    # inlines one it looks names up in the module; so this frame, not what it calls, is left out.
    copy = FunctionType(
        code.replace(), original.__globals__ | names, code.co_name, None, original.__closure__
    )
    copy.__defaults__, copy.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    uncompiled: Callable[..., Any] = torch.compiler.disable(copy, recursive=False)  # type: ignore[no-untyped-call]
    return uncompiled


class Rewired(Replacement):
    """A rewired function, its first arguments given; unlike the bare copy it can be pickled.

    Args:
        function: The function, or a method as its class has it.
        names: Names of its module that it uses, and what they mean here.
        arguments: Its first arguments: the module whose method it is.
        known: The versions this is written for.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        names: Mapping[str, object],
        *arguments: object,
        known: str,
    ) -> None:
        self.function, self.names, self.arguments, self.known = function, names, arguments, known
        self.copy = rewired(function, names, known=known)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """What the function gives with the names exchanged."""
        return self.copy(*self.arguments, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "copy"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.copy = rewired(self.function, self.names, known=self.known)
