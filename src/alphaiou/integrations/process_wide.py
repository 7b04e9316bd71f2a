"""A box loss for every model of the process: where a framework builds its models itself.

Such a framework looks its box loss up by a name in a module of its own, and takes one minus that:
the name gets another function, until it is given its own back.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, ModuleType

from torch import Tensor

from alphaiou.integrations.box_loss import Boxes, PairLoss
from alphaiou.integrations.handle import BoxLossHandle, Change, Replacement, put, undo
from alphaiou.integrations.rewiring import UnsupportedVersionError


class Similarity(Replacement):
    """``1 − loss`` of each pair of ``xyxy`` boxes, of which a framework takes one minus again."""

    def __init__(self, loss: PairLoss) -> None:
        self.loss = loss

    def __call__(self, pred: Boxes, target: Boxes) -> Tensor:
        """One value a pair, which is not a similarity where the loss is more than one."""
        return 1 - self.loss(pred, target)


def install_process_wide(description: str, changes: Sequence[Change]) -> BoxLossHandle:
    """Make the changes; names that have a replacement already are refused, and left as they are."""
    if present := [change for change in changes if _is_replaced(change)]:
        raise ValueError(
            f"{_places(present)} already has a box loss of alphaiou: take it out first, with "
            "restore() of its handle or with restore_box_loss()"
        )
    put(changes)
    return BoxLossHandle(_places(changes), description, changes)


def restore_names(names: Iterable[tuple[ModuleType, str]]) -> None:
    """Put back what the modules had under these names, whoever has the handle."""
    for module, name in names:
        replacement = vars(module).get(name)
        if isinstance(replacement, Replacement):
            undo(Change(module, name, replacement))


def check_name(module: ModuleType, name: str, user: ModuleType, *, known: str) -> None:
    """Refuse a framework in which a module does not have the name, or its user does not use it.

    Raises:
        UnsupportedVersionError: Named are the places that were looked at, and the known versions.
    """
    if not (callable(vars(module).get(name)) and name in _names_used_in(user)):
        raise UnsupportedVersionError(
            f"{user.__name__} does not use {module.__name__}.{name}, the place where the box loss "
            f"goes in; this version of alphaiou knows {known}"
        )


def _names_used_in(module: ModuleType) -> set[str]:
    """What the functions of a module, and the methods of its classes, look up by name."""
    return {name for function in _functions(module) for name in function.__code__.co_names}


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for member in vars(value).values() if isinstance(value, type) else (value,):
            function = inspect.unwrap(member) if callable(member) else member
            if isinstance(function, FunctionType):
                yield function


def _is_replaced(change: Change) -> bool:
    return isinstance(vars(change.module).get(change.attribute), Replacement)


def _places(changes: Sequence[Change]) -> str:
    """Where the changes are, such as ``rfdetr.utilities.box_ops.box_iou``."""
    return ", ".join(f"{vars(module)['__name__']}.{name}" for module, name, _ in changes)
