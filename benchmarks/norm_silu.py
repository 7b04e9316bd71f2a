"""Batch norm with SiLU, forward and backward: ours, torch's and a copy, in one run.

    python -m benchmarks.norm_silu [--batch 64] [--out PATH]

The sizes are those of YOLOv5s at 320 pixels; both are compiled. A call is a CUDA graph over copies
of the features that exceed the cache. The minimum traffic is to read x twice and write y once, then
read x and the gradient twice and write a gradient. It is compared with the time of a copy.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn

from alphaiou.detectors.ops.kernels import norm_silu as norm_silu_kernel
from alphaiou.detectors.ops.norm_silu import norm_silu
from benchmarks.record import FOLDER, conditions, write_record
from benchmarks.timing import graphed, milliseconds

SIDES = (160, 80, 80, 40, 40, 20, 20, 10, 10)
CHANNELS = (32, 64, 32, 128, 64, 256, 128, 512, 256)
TIMES_A_COPY = (3 + 5) / 2  # forward and backward; a copy reads once and writes once


def time_of(call, tensors):
    """Return milliseconds per tensor of a call."""

    def calls():
        for one in tensors:
            call(*one)

    if tensors[0][0].is_cuda:
        return milliseconds(graphed(calls), calls=20) / len(tensors)
    start = time.perf_counter()
    calls()
    return (time.perf_counter() - start) / len(tensors) * 1e3


def plainly(x, norm):
    return nn.functional.silu(norm(x))


def measure(batch, side, channels, device, cache):
    """Return milliseconds of both, forward and in total, and of a copy."""
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.03).to(device)
    options = {"dtype": torch.bfloat16, "device": device}
    x = torch.randn(batch, channels, side, side, **options).to(memory_format=torch.channels_last)
    copies = max(1, round(cache / x.nbytes))
    tensors = [(x.clone().requires_grad_(), torch.randn_like(x)) for _ in range(copies)]
    row = {"rows": batch * side * side, "channels": channels, "megabytes": x.nbytes / 1e6}
    row["copy_ms"] = time_of(lambda x, other: other.copy_(x.detach()), tensors)
    torch._dynamo.reset()
    for name, function in (("ours", norm_silu), ("torch", plainly)):
        compiled = torch.compile(function, dynamic=False)

        def both(x, gradient, compiled=compiled):
            y = compiled(x, norm)
            return torch.autograd.grad(y, [x, norm.weight, norm.bias], gradient)

        row[f"{name}_forward_ms"] = time_of(lambda x, _, f=compiled: f(x, norm), tensors)
        row[f"{name}_ms"] = time_of(both, tensors)
        row[f"{name}_of_copy"] = TIMES_A_COPY * row["copy_ms"] / row[f"{name}_ms"]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER / "norm_silu-cuda.json")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--cache", type=float, default=4e8, help="bytes of features per call")
    parser.add_argument("--set", nargs="*", default=[], help="NAME=NUMBER of the kernels")
    arguments = parser.parse_args()
    for name, number in (setting.split("=") for setting in arguments.set):
        setattr(norm_silu_kernel, name, int(number))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    record = {"record": "norm_silu", **conditions(device), "settings": arguments.set, "rows": []}
    for side, channels in zip(SIDES, CHANNELS, strict=True):
        row = measure(arguments.batch, side, channels, device, arguments.cache)
        record["rows"].append(row)
        print(json.dumps(row), flush=True)
        write_record(record, arguments.out)


if __name__ == "__main__":
    main()
