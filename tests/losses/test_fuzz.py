"""Hard pairs for every kind and α: not one value or gradient that is not finite.

The battery of `benchmarks/fuzz.py` has ten times as many.
"""

from functools import lru_cache

import pytest
import torch

from alphaiou import alpha_iou_loss
from alphaiou.losses import modifiers
from tests.losses.catalogue import CHAINS, KINDS
from tests.strategies import DTYPES, FORMATS, adversarial_pairs, encode

CHUNK = 25_000
ALPHAS = (0.0, 0.5, 1.0, 2.0, 3.0, 10.0)


@lru_cache(maxsize=len(DTYPES) * len(FORMATS))
def chunk(dtype, box_format):
    """Pairs of one dtype, written in one format."""
    pairs = adversarial_pairs(CHUNK, dtype=dtype, seed=DTYPES.index(dtype))
    return tuple(encode(boxes, box_format) for boxes in pairs)


def fuzz(alpha, **options):
    """Every dtype, and over the six α each of them in every format."""
    for index, dtype in enumerate(DTYPES):
        box_format = FORMATS[(index + ALPHAS.index(alpha)) % len(FORMATS)]
        pair = chunk(dtype, box_format)
        leaves = [boxes.clone().requires_grad_() for boxes in pair]
        loss = alpha_iou_loss(*leaves, alpha=alpha, box_format=box_format, **options)
        gradients = torch.autograd.grad(loss.sum(), leaves)
        assert (loss >= 0).all()
        for tensor in (loss, *gradients):
            assert tensor.isfinite().all(), first_bad(tensor, *pair)


def first_bad(tensor, pred, target):
    """The first pair with something that is not finite, to show."""
    row = tensor.isfinite().reshape(len(pred), -1).all(dim=1).logical_not().nonzero()[0, 0]
    return tensor[row].tolist(), pred[row].tolist(), target[row].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_pairs(kind, alpha):
    fuzz(alpha, kind=KINDS[kind].ours)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("chain", CHAINS)
def test_hard_pairs_under_modifiers(chain, alpha):
    fuzz(alpha, kind="ciou", modifiers=CHAINS[chain].ours)


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_hard_pairs_under_wise(version):
    fuzz(3.0, kind="diou", modifiers=(modifiers.Wise(version=version, momentum=0.5),))
