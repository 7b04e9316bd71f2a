"""A function with another one of its module exchanged; and what is changed can be put back."""

import copy
import pickle
import textwrap

import pytest
import torch

from alphaiou.integrations._patching import (
    Change,
    InstalledLoss,
    Replacement,
    Rewired,
    UnsupportedVersionError,
    install,
    restore_box_loss,
    rewired,
)

FACTOR = 2


def helper(value):
    return value * FACTOR


def caller(value, *, plus=1):
    """What somebody's library does."""
    return helper(value) + plus


def other_helper(value):
    return value * 100


def test_the_copy_uses_the_other_function_and_the_original_its_own():
    changed = rewired(caller, {"helper": other_helper}, known="this file")
    assert changed(3) == 301
    assert changed(3, plus=0) == 300
    assert caller(3) == 7
    assert helper is caller.__globals__["helper"]


def test_decorators_are_taken_off():
    assert rewired(torch.no_grad()(caller), {"helper": other_helper}, known="")(1) == 101


def test_a_name_that_is_not_used_is_refused():
    with pytest.raises(UnsupportedVersionError, match=r"caller.*'textwrap'.*knows lib 1 to 2"):
        rewired(caller, {"textwrap": textwrap}, known="lib 1 to 2")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_it_can_be_copied_and_pickled(again):
    assert again(Rewired(caller, {"helper": other_helper}, 3, known=""))(plus=5) == 305


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_code_takes_the_other_function_too():
    """Dynamo looks up the names of what it inlines in the module, not in the function."""
    changed = Rewired(caller, {"helper": other_helper}, known="")
    one = torch.ones(())
    for function, expected in ((caller, 3), (changed, 101), (caller, 3)):
        compiled = torch.compile(lambda value, f=function: f(value + 0), backend="eager")
        assert compiled(one) == expected


class Constant(Replacement):
    """A method that gives one value."""

    def __init__(self, value):
        self.value = value

    def __call__(self, *args):
        return self.value


def linear():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model[1].note = "own"
    return model


def changes(model):
    return [Change(model[0], "forward", Constant(1)), Change(model[1], "note", Constant(2))]


def installed(model):
    return install(model, InstalledLoss("iou"), changes(model), cause="a test", description="loss")


def test_everything_is_put_back():
    model = linear()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    with installed(model) as handle:
        assert model[0](torch.ones(2)) == 1
        assert repr(handle) == "<loss in Sequential.0.forward, Sequential.1.note>"
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    handle.restore()
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


def test_an_error_in_the_block_puts_back_too():
    model = linear()
    with pytest.raises(KeyError), installed(model):
        raise KeyError
    assert model[1].note == "own"


def test_the_second_time_is_refused_and_changes_nothing():
    model = linear()
    first = installed(model)
    with pytest.raises(ValueError, match=r"Sequential\.0\.forward.*already.*restore_box_loss"):
        installed(model)
    assert model[0].forward is first.changes[0].replacement
    first.restore()
    second = installed(model)
    first.restore()  # its own change is gone already: the second one stays
    assert model[0].forward is second.changes[0].replacement


def test_a_copy_is_put_back_without_its_handle():
    model = linear()
    handle = installed(model)
    twin = copy.deepcopy(model)
    restore_box_loss(twin)
    assert "forward" not in vars(twin[0])
    assert twin[1].note == "own"
    assert model[0].forward is handle.changes[0].replacement
