"""Time breakdown of a small call on CUDA: 1,024 pairs, forward and backward, in microseconds.

python -m benchmarks.overhead | tee benchmarks/overhead-cuda.txt
"""

import time

import torch
import triton
from torchvision.ops import complete_box_iou_loss

from alphaiou import alpha_iou_loss
from alphaiou.losses.formula import Exponent
from alphaiou.losses.kernels import triton as triton_kernel

PAIRS = 1024
ROUNDS = 7


class Nothing(torch.autograd.Function):
    """A minimal autograd function: a constant forward, one product backward."""

    @staticmethod
    def forward(ctx, boxes, number, gradient):
        ctx.gradient = gradient
        return number.clone()

    @staticmethod
    def backward(ctx, slope):
        return ctx.gradient * slope, None, None


def median_us(call, *, synchronised, calls=300):
    """Return the median time of a call, optionally synchronising after each."""
    for _ in range(30):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        if synchronised:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return 1e6 * sorted(times)[calls // 2]


def main():
    pred = 100 * torch.rand(PAIRS, 4, device="cuda")
    pred[:, 2:] += pred[:, :2] + 1
    target = pred + 10 * torch.randn_like(pred)
    leaf = pred.clone().requires_grad_()
    settings = {"kind": "ciou", "parameter": 0.0, "box_cox": False, "box_format": "xyxy"}
    settings |= {"scale": 1.0, "reduce": True, "want_grad": True}
    number, gradient = torch.ones((), device="cuda"), torch.ones_like(pred)
    power = Exponent(None, 3.0)

    def ours():
        return alpha_iou_loss(leaf, target, kind="ciou", reduction="mean")

    def theirs():
        return complete_box_iou_loss(leaf, target, reduction="mean")

    kept = ours()
    rows = {
        "torchvision CIoU, forward + backward": (lambda: torch.autograd.grad(theirs(), leaf), True),
        "ours, forward + backward": (lambda: torch.autograd.grad(ours(), leaf), True),
        "for comparison: x.sum(), forward + backward": (
            lambda: torch.autograd.grad(leaf.sum(), leaf),
            True,
        ),
        "for comparison: an autograd.Function that computes nothing, forward + backward": (
            lambda: torch.autograd.grad(Nothing.apply(leaf, number, gradient), leaf),
            True,
        ),
        "ours, backward alone": (lambda: torch.autograd.grad(kept, leaf, retain_graph=True), True),
        "ours, forward, not waiting": (ours, False),
        "  of it: launch with its two allocations": (
            lambda: triton_kernel.launch(pred, target, None, (power, power), **settings),
            False,
        ),
        "  one torch.empty": (lambda: torch.empty((), device="cuda"), False),
        "  the multiplication of the backward pass": (lambda: gradient * number, False),
    }
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    times = {name: [] for name in rows}
    for _ in range(ROUNDS):
        for name, (call, synchronised) in rows.items():
            times[name].append(median_us(call, synchronised=synchronised))
    for name, found in times.items():
        print("".join(f"{value:8.1f}" for value in found), f"  {name}")


if __name__ == "__main__":
    main()
