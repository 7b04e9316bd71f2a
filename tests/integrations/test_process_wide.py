"""Names of a module that get another function for a while."""

import types

import pytest
import torch

from alphaiou.integrations._patching import (
    Change,
    InstalledLoss,
    Similarity,
    UnsupportedVersionError,
    check_name,
    install_process_wide,
    restore_names,
)

SOURCE = """
def similarity(pred, target):
    return 5

class Loss:
    def forward(self, pred, target):
        return 1 - similarity(pred, target)
"""


def framework(source=SOURCE):
    """A module that takes its box loss as frameworks do."""
    module = types.ModuleType("framework.loss")
    exec(source, vars(module))
    return module


def change(module, loss="iou:2"):
    return Change(module, "similarity", Similarity(InstalledLoss(loss)))


def install(module):
    changed = change(module)
    return install_process_wide(changed.replacement.loss, [changed], cause="a test")


BOXES = torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[0.0, 0.0, 4.0, 2.0]])


def test_the_loss_goes_in_and_what_was_there_comes_back():
    module = framework()
    own = dict(vars(module))
    with install(module) as handle:
        assert repr(handle) == (
            "<AlphaIoULoss(kind='iou', alpha=2.0, penalty_alpha=None) in framework.loss.similarity>"
        )
        torch.testing.assert_close(module.Loss().forward(*BOXES), torch.tensor([0.75]))
    assert dict(vars(module)) == own
    handle.restore()
    assert dict(vars(module)) == own


def test_the_second_is_refused_and_changes_nothing_until_the_first_is_out():
    module = framework()
    own = module.similarity
    first = install(module)
    replacement = module.similarity
    with pytest.raises(ValueError, match=r"framework\.loss\.similarity already.*restore_box_loss"):
        install(module)
    assert module.similarity is replacement
    restore_names([(module, "similarity")])
    assert module.similarity is own
    second = install(module)
    first.restore()
    assert module.similarity is second.changes[0].replacement
    second.restore()
    assert module.similarity is own


def test_a_name_that_is_not_there_or_not_used_is_refused_with_the_known_versions():
    check_name(framework(), "similarity", framework(), known="framework 1")
    for source in (
        SOURCE.replace("similarity", "overlap"),
        SOURCE.replace("1 - similarity", "iou"),
    ):
        module = framework(source)
        with pytest.raises(
            UnsupportedVersionError, match=r"framework\.loss\.similarity.*fram.* 1$"
        ):
            check_name(module, "similarity", module, known="framework 1")
