"""What was changed in a model of somebody else's, and how it is put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

from torch import nn


class Replacement:
    """What stands in the place of an attribute of one module, and what was there before.

    It is no module itself, so that the model's ``state_dict`` keeps its keys.
    """

    #: What the module itself had there before, if anything; its class may have more.
    previous: tuple[object, ...] = ()


class Change(NamedTuple):
    """A replacement, and the attribute whose place it takes."""

    module: nn.Module
    attribute: str
    replacement: Replacement


class BoxLossHandle:
    """A box loss in a model; ``restore``, or the end of a ``with`` block, takes it out again."""

    def __init__(self, model: nn.Module, description: str, changes: Sequence[Change]) -> None:
        self.model, self.description, self.changes = model, description, tuple(changes)

    def restore(self) -> None:
        """Put back what was there before this handle; done once, the second time does nothing."""
        for change in self.changes:
            if vars(change.module).get(change.attribute) is change.replacement:
                _undo(change)

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
        return f"<{self.description} in {_places(self.model, self.changes)}>"


def install(model: nn.Module, description: str, changes: Sequence[Change]) -> BoxLossHandle:
    """Make the changes; a model that has some already is refused, and left as it is."""
    if present := tuple(_present(model)):
        raise ValueError(
            f"{_places(model, present)} already has a box loss of alphaiou: take it out first, "
            "with restore() of its handle or with restore_box_loss(model)"
        )
    for change in changes:
        own = vars(change.module)
        if change.attribute in own:
            change.replacement.previous = (own[change.attribute],)
        own[change.attribute] = change.replacement
    return BoxLossHandle(model, description, changes)


def restore_box_loss(model: nn.Module) -> None:
    """Put back the model's own box loss, whoever has the handle: in a copy, or after loading."""
    for change in tuple(_present(model)):
        _undo(change)


def _present(model: nn.Module) -> Iterator[Change]:
    for module in model.modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Replacement):
                yield Change(module, attribute, value)


def _undo(change: Change) -> None:
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
