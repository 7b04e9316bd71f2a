"""How another box loss is installed in somebody else's training, and removed again."""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from alphaiou.boxes import PairFormat
from alphaiou.errors import AlphaIoUError
from alphaiou.losses.pair_loss import Boxes, BoxLoss, PairLoss
from alphaiou.numerics import is_compiling


class UnsupportedVersionError(AlphaIoUError):
    """The installed version of a framework has no known place for the box loss."""


# --- Replaced attributes, and the handle that restores them ---------------------------------------


class Replacement:
    """Replaces an attribute of a module, and keeps the previous value.

    It is not an ``nn.Module``, so that the model's ``state_dict`` keeps its keys.
    """

    #: The value in the module's own ``__dict__`` before, if any; its class may have another.
    previous: tuple[object, ...] = ()


class Change(NamedTuple):
    """A replacement and its place: an attribute of a model's part, of a module or of a class."""

    module: nn.Module | ModuleType | type
    attribute: str
    replacement: Replacement


class BoxLossHandle:
    """An installed box loss; ``restore``, or the end of a ``with`` block, removes it.

    If an optimiser makes a step before the loss was called, a warning names the likely cause, once.
    """

    def __init__(
        self,
        places: str,
        description: str,
        changes: Sequence[Change],
        *,
        loss: Noted,
        cause: str,
        model: nn.Module | None = None,
    ) -> None:
        self.places, self.description, self.changes = places, description, tuple(changes)
        self._key = loss.key
        self._watch = _StepWatch(repr(self), loss.key, cause, model)

    @property
    def called(self) -> bool:
        """Whether the loss was computed since it was installed, here or in a copy of the model."""
        return self._key in _CALLED

    def restore(self) -> None:
        """Restore the previous values; a second call does nothing."""
        self._watch.end()
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
        return f"<{self.description} in {self.places}>"


def _apply(changes: Sequence[Change]) -> None:
    for change in changes:
        attributes = vars(change.module)
        if change.attribute in attributes:
            change.replacement.previous = (attributes[change.attribute],)
        _set(change, change.replacement)


def _undo(change: Change) -> None:
    if isinstance(change.module, type):
        delattr(change.module, change.attribute)
    else:
        del vars(change.module)[change.attribute]
    for value in change.replacement.previous:
        _set(change, value)


def _set(change: Change, value: object) -> None:
    if isinstance(change.module, type):
        setattr(change.module, change.attribute, value)
    else:  # not setattr, which would register modules
        vars(change.module)[change.attribute] = value


# --- Whether the loss is called -------------------------------------------------------------------

_KEYS = count()
#: The keys of the losses that were called.
_CALLED: set[int] = set()


def new_key() -> int:
    """A number for a loss, by which its calls are noted."""
    return next(_KEYS)


class Noted(Protocol):
    """A loss that notes its calls by a number."""

    key: int


class InstalledLoss(PairLoss):
    """A box loss that notes that it was called."""

    def __init__(
        self, loss: BoxLoss, weight: float = 1.0, *, box_format: PairFormat = "xyxy"
    ) -> None:
        super().__init__(loss, weight, box_format=box_format)
        self.key = new_key()

    def forward(self, pred: Boxes, target: Boxes, valid: Tensor | None = None) -> Tensor:
        """The weighted loss of each pair."""
        note_call(self.key)
        return super().forward(pred, target, valid)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def note_call(key: int) -> None:
    """Torch.compile runs this while it traces, and leaves it out of the graph."""
    _CALLED.add(key)


class _StepWatch:
    """Warns once if an optimiser makes a step and the loss has not been called."""

    def __init__(self, installed: str, key: int, cause: str, model: nn.Module | None) -> None:
        self.installed, self.key, self.cause = installed, key, cause
        self.model = None if model is None else weakref.ref(model)
        self.done = False
        self.hook = register_optimizer_step_post_hook(self)

    def end(self) -> None:
        """Stop watching."""
        self.hook.remove()

    def __call__(self, optimizer: Optimizer, *_: object) -> None:
        """After a step; the hook stays, since an optimiser is going through all of them."""
        if self.done or is_compiling() or not self._trains(optimizer):
            return
        self.done = True
        if self.key not in _CALLED:
            warnings.warn(
                f"a training step was made without a call of {self.installed}. Likely cause: "
                f"{self.cause}",
                stacklevel=2,
            )

    def _trains(self, optimizer: Optimizer) -> bool:
        """Whether the optimiser has a parameter of the model; without a model, any will do."""
        if self.model is None:
            return True
        model = self.model()
        if model is None:
            self.done = True
            return False
        trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        return any(id(weight) in trained for weight in model.parameters())


# --- In one model ---------------------------------------------------------------------------------


def install(
    model: nn.Module,
    loss: Noted,
    changes: Sequence[Change],
    *,
    cause: str,
    description: str = "",
) -> BoxLossHandle:
    """Apply changes to a model; one that has a box loss already is rejected, unchanged.

    Args:
        model: The model.
        loss: The loss, which the changes put in.
        changes: What to replace in the model.
        cause: The likely cause if a training step does not call the loss, for the warning.
        description: The loss in words; by default as it prints itself.
    """
    if present := tuple(_changes_in(model)):
        raise ValueError(
            f"{_places_in(model, present)} already has a box loss of alphaiou: remove it first, "
            "with restore() of its handle or with restore_box_loss(model)"
        )
    places = _places_in(model, changes)
    modules = {id(change.module): change.module for change in changes}
    scripts = [Change(module, _SCRIPT, _NoScript(places)) for module in modules.values()]
    _apply([*changes, *scripts])
    everything = [*changes, *scripts]
    description = description or repr(loss)
    return BoxLossHandle(places, description, everything, loss=loss, cause=cause, model=model)


#: What torch.jit.script calls, if a module has it, before it compiles the module.
_SCRIPT = "__prepare_scriptable__"


class _NoScript(Replacement):
    """Refuses to be scripted: TorchScript compiles the class's methods, not the changed ones."""

    def __init__(self, places: str) -> None:
        self.places = places

    def __call__(self) -> nn.Module:
        raise TypeError(
            f"torch.jit.script would leave out the box loss of alphaiou in {self.places}: it "
            "compiles the methods of the class. Train without it, and call restore_box_loss(model) "
            "before exporting"
        )


def restore_box_loss(model: nn.Module) -> None:
    """Restore the model's own box loss without the handle: in a copy, or after loading."""
    for change in tuple(_changes_in(model)):
        _undo(change)


def _changes_in(model: nn.Module) -> Iterator[Change]:
    for module in model.modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Replacement):
                yield Change(module, attribute, value)


def _places_in(model: nn.Module, changes: Sequence[Change]) -> str:
    """The names of what is replaced, such as ``FasterRCNN.roi_heads.forward``."""
    names = {id(module): name for name, module in model.named_modules()}
    return ", ".join(
        ".".join(filter(None, (type(model).__name__, names[id(module)], attribute)))
        for module, attribute, _ in changes
        if attribute != _SCRIPT
    )


# --- In the whole process: names of Python modules ------------------------------------------------


class Similarity(Replacement):
    """``1 − loss`` of each pair of ``xyxy`` boxes, for a framework that takes one minus it."""

    def __init__(self, loss: PairLoss) -> None:
        self.loss = loss

    def __call__(self, pred: Boxes, target: Boxes) -> Tensor:
        """One value per pair; it is negative where the loss is more than 1."""
        return 1 - self.loss(pred, target)


def install_process_wide(
    loss: Noted, changes: Sequence[Change], *, cause: str, description: str = ""
) -> BoxLossHandle:
    """Replace names of modules; if one is replaced already, all are rejected, unchanged.

    Args:
        loss: The loss, which the changes put in.
        changes: The names to replace.
        cause: The likely cause if a training step does not call the loss, for the warning.
        description: The loss in words; by default as it prints itself.
    """
    if present := [change for change in changes if _is_replaced(change)]:
        raise ValueError(
            f"{_names_of(present)} already has a box loss of alphaiou: remove it first, with "
            "restore() of its handle or with restore_box_loss()"
        )
    _apply(changes)
    description = description or repr(loss)
    return BoxLossHandle(_names_of(changes), description, changes, loss=loss, cause=cause)


def restore_names(names: Iterable[tuple[ModuleType | type, str]]) -> None:
    """Restore what modules had under these names, without the handle."""
    for module, name in names:
        replacement = vars(module).get(name)
        if isinstance(replacement, Replacement):
            _undo(Change(module, name, replacement))


def check_name(module: ModuleType, name: str, user: ModuleType, *, known: str) -> None:
    """Check that a module of a framework defines a name, and that another one uses it.

    Raises:
        UnsupportedVersionError: It does not; the message gives the place and the known versions.
    """
    if not (callable(vars(module).get(name)) and name in _names_used_in(user)):
        raise UnsupportedVersionError(
            f"{user.__name__} does not use {module.__name__}.{name}, the place where the box loss "
            f"goes in; this version of alphaiou knows {known}"
        )


def _names_used_in(module: ModuleType) -> set[str]:
    """The names that the functions of a module, and the methods of its classes, look up."""
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


def _names_of(changes: Sequence[Change]) -> str:
    """The names of what is replaced, such as ``rfdetr.utilities.box_ops.box_iou``."""
    return ", ".join(
        f"{module.__qualname__ if isinstance(module, type) else vars(module)['__name__']}.{name}"
        for module, name, _ in changes
    )


# --- A copy of a function in which names mean something else --------------------------------------


def rewired(
    function: Callable[..., Any], names: Mapping[str, object], *, known: str
) -> Callable[..., Any]:
    """Copy a function and replace names that it looks up in its module; the original stays.

    Args:
        function: A Python function; decorators are removed.
        names: Names of its module that it uses, and their values in the copy.
        known: The supported versions, for the message if a name is not used.

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
    # A separate code object, since torch.compile stores there what it compiled of a function. When
    # it inlines a function it looks names up in the module, so this frame is not compiled; the
    # functions that it calls are.
    copy = FunctionType(
        code.replace(), original.__globals__ | names, code.co_name, None, original.__closure__
    )
    copy.__defaults__, copy.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    uncompiled: Callable[..., Any] = torch.compiler.disable(copy, recursive=False)  # type: ignore[no-untyped-call]
    return uncompiled


class Rewired(Replacement):
    """A rewired function with its first arguments; unlike the bare copy it can be pickled.

    Args:
        function: The function, or a method as defined in its class.
        names: Names of its module that it uses, and their values in the copy.
        arguments: Its first arguments, such as the module whose method it is.
        known: The supported versions.
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
        """Call the copy."""
        return self.copy(*self.arguments, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "copy"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.copy = rewired(self.function, self.names, known=self.known)
