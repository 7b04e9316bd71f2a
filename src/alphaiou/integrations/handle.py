"""What was changed in a model of somebody else's, and how it is put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType, TracebackType
from typing import NamedTuple

from torch import nn


class Replacement:
    """What stands in the place of an attribute of a module, and what was there before.

    It is no module itself, so that the model's ``state_dict`` keeps its keys.
    """

    #: What the module itself had there before, if anything; its class may have more.
    previous: tuple[object, ...] = ()


class Change(NamedTuple):
    """A replacement, and whose place it takes: an attribute of a model's part, a module's name."""

    module: nn.Module | ModuleType
    attribute: str
    replacement: Replacement


class BoxLossHandle:
    """A box loss put in; ``restore``, or the end of a ``with`` block, takes it out again."""

    def __init__(self, places: str, description: str, changes: Sequence[Change]) -> None:
        self.places, self.description, self.changes = places, description, tuple(changes)

    def restore(self) -> None:
        """Put back what was there before this handle; done once, the second time does nothing."""
        for change in self.changes:
            if vars(change.module).get(change.attribute) is change.replacement:
                undo(change)

    def __enter__(self) -> BoxLossHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"<{self.description} in {self.places}>"


def install(model: nn.Module, description: str, changes: Sequence[Change]) -> BoxLossHandle:
    """Make the changes; a model that has some already is refused, and left as it is."""
    if present := tuple(_present(model)):
        raise ValueError(
            f"{_places(model, present)} already has a box loss of alphaiou: take it out first, "
            "with restore() of its handle or with restore_box_loss(model)"
        )
    put(changes)
    return BoxLossHandle(_places(model, changes), description, changes)


def restore_box_loss(model: nn.Module) -> None:
    """Put back the model's own box loss, whoever has the handle: in a copy, or after loading."""
    for change in tuple(_present(model)):
        undo(change)


def put(changes: Sequence[Change]) -> None:
    """Make the changes, each of which keeps what was there."""
    for change in changes:
        own = vars(change.module)
        if change.attribute in own:
            change.replacement.previous = (own[change.attribute],)
        own[change.attribute] = change.replacement


def _present(model: nn.Module) -> Iterator[Change]:
    for module in model.modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Replacement):
                yield Change(module, attribute, value)


def undo(change: Change) -> None:
    """Put back what one change has replaced."""
    own = vars(change.module)
    del own[change.attribute]
    own.update((change.attribute, value) for value in change.replacement.previous)


def _places(model: nn.Module, changes: Sequence[Change]) -> str:
    """Where the changes are, such as ``FasterRCNN.roi_heads.forward``."""
    names = {id(module): name for name, module in model.named_modules()}
    return ", ".join(
        ".".join(filter(None, (type(model).__name__, names[id(module)], attribute)))
        for module, attribute, _ in changes
    )
