"""How another box loss is put into somebody else's training, and taken out again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float
from alphaiou.errors import AlphaIoUError
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.spec import LossSpec
from alphaiou.numerics import check_number


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


Boxes = Float[Tensor, "pairs 4"]
#: An ``AlphaIoULoss``, a text such as ``diou:3``, or a function of ``xyxy`` boxes.
BoxLoss = AlphaIoULoss | str | Callable[[Tensor, Tensor], Tensor]


class PairLoss:
    """Any box loss, times a weight, one value a pair.

    Args:
        loss: An ``AlphaIoULoss`` (its own box format and reduction do not matter here), a text
            such as ``diou`` or ``diou:3``, or a function from predicted and target boxes in
            ``xyxy`` to one value a pair.
        weight: The factor of every value.

    Examples:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 4.0, 2.0]])
        >>> PairLoss("iou:3", weight=8.0)(boxes, boxes[[0, 0]])
        tensor([0., 7.])
    """

    def __init__(self, loss: BoxLoss, weight: float = 1.0) -> None:
        check_number("weight", weight)
        self.loss, self.weight = _one_value_a_pair(loss), weight

    def __call__(self, pred: Boxes, target: Boxes) -> Float[Tensor, " pairs"]:
        """The weighted loss of each pair; of no pairs, an empty tensor with a gradient."""
        if isinstance(self.loss, nn.Module):
            _move_state(self.loss, pred)
        losses: Tensor = self.loss(pred, target)
        if losses.shape != pred.shape[:-1]:
            raise ValueError(
                f"the box loss must give one value a pair: {tuple(pred.shape[:-1])} for boxes "
                f"{tuple(pred.shape)}, got {tuple(losses.shape)}; does it take a mean or a sum?"
            )
        return losses * self.weight

    def __repr__(self) -> str:
        loss = self.loss
        text = f"AlphaIoULoss({loss.extra_repr()})" if isinstance(loss, AlphaIoULoss) else f"{loss}"
        return text if self.weight == 1 else f"{text} × {self.weight:g}"


def _move_state(loss: nn.Module, boxes: Tensor) -> None:
    """Move the state of the loss to the boxes: ``model.to`` does not know of it."""
    if any(state.device != boxes.device for state in loss.buffers()):
        loss.to(boxes.device)


def _one_value_a_pair(loss: BoxLoss) -> AlphaIoULoss | Callable[[Tensor, Tensor], Tensor]:
    if isinstance(loss, str):
        loss = LossSpec.parse(loss).module()
    if isinstance(loss, AlphaIoULoss):
        # A copy that shares its state: a scheduled α, a running mean.
        loss = copy(loss)
        loss.box_format, loss.reduction = "xyxy", "none"
    elif not callable(loss):
        raise TypeError(
            f"loss must be an AlphaIoULoss, a text such as 'diou:3', or a function of two tensors "
            f"of xyxy boxes, got {type(loss).__name__}"
        )
    return loss


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
            f"{_module_places(present)} already has a box loss of alphaiou: take it out first, "
            f"with "
            "restore() of its handle or with restore_box_loss()"
        )
    put(changes)
    return BoxLossHandle(_module_places(changes), description, changes)


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


def _module_places(changes: Sequence[Change]) -> str:
    """Where the changes are, such as ``rfdetr.utilities.box_ops.box_iou``."""
    return ", ".join(f"{vars(module)['__name__']}.{name}" for module, name, _ in changes)
