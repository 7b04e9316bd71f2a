"""Hard pairs by the thousand (on CUDA by the million): nothing that is not finite."""

from functools import cache

import pytest
import torch

from tests.losses.catalogue import KINDS
from tests.losses.kernels.cases import ALPHAS, DTYPES, loss_and_gradient, ours, skip_without_kernel
from tests.strategies import FORMATS, adversarial_pairs, encode

skip_without_kernel()
pytestmark = pytest.mark.gpu


@cache
def pairs(count, dtype, seed):
    return adversarial_pairs(count, dtype=dtype, seed=seed)


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_hard_pairs_are_finite(kind, row, device):
    # In the interpreter the sum is one program; it is finite if all of its terms are.
    count, reduction = (2000, "sum") if device.type == "cpu" else (1_000_000, "none")
    dtype, box_format = DTYPES[row], FORMATS[(row + len(kind)) % 3]
    drawn = pairs(count, dtype, row)
    pred, target = (encode(boxes, box_format).to(device) for boxes in drawn)
    # A step of 5 meets every α in every family, which lie one after the other.
    alpha = torch.tensor(ALPHAS, device=device)[5 * torch.arange(count, device=device) % 6]
    loss, gradient = loss_and_gradient(
        pred,
        target,
        kind=ours(kind),
        alpha=alpha,
        box_cox=row == 1,
        box_format=box_format,
        reduction=reduction,
        backend="fused",
    )
    assert (loss >= -1e-6).all()
    assert loss.isfinite().all()
    bad = ~gradient.isfinite().all(dim=1)
    assert not bad.any(), [t[bad][0].tolist() for t in (pred, target, alpha, gradient)]
