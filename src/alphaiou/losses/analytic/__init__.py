"""Loss and gradient of one box pair in closed form: the derivation behind the fused kernels.

The same formulas as ``terms.py``, with the reverse pass written out by hand, in the few operations
that torch and Triton share: Triton compiles these very functions for CUDA, torch's own compiler for
the CPU. ``tl`` is ``losses.dialect`` here and ``triton.language`` there; hence one operation after
another, no closures, and branches on the kind alone.

The derivation. Along each axis the loss L knows the prediction's corners (lo, hi) only through six
lengths in hull units (``Axis``: pred, overlap, gap, hull, low, high). Every kind returns the slope
of L along each of them (``Slope``), by the chain rule from its equation; ``corner_slopes`` leads
back:

    pred    = hi − lo                               ∂hi = 1            ∂lo = −1
    overlap = max(min(hi, hiᵍ) − max(lo, loᵍ), 0)   ∂hi = [hi < hiᵍ]   ∂lo = −[lo > loᵍ]
    gap     = max(max(lo, loᵍ) − min(hi, hiᵍ), 0)   the same, with the other sign
    hull    = max(hi, hiᵍ) − min(lo, loᵍ)           ∂hi = [hi > hiᵍ]   ∂lo = −[lo < loᵍ]
    low, high = lo − loᵍ, hi − hiᵍ                  ∂hi = 1            ∂lo = 1

where [·] is ½ at a tie, as in torch's ``minimum`` and ``maximum``. The hull unit itself is held
constant (no loss depends on it). The caps are those of ``numerics.py``.
"""

from alphaiou.losses.analytic.formula import pair_loss

__all__ = ["pair_loss"]
