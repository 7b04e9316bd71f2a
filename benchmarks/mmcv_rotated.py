"""mmcv's rotated IoU of the pairs in one npz file, written to another, with its time.

Run by ``benchmarks.oriented`` in a Python that has mmcv, and perhaps nothing of this project.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import torch
from mmcv.ops import box_iou_rotated  # type: ignore[import-not-found, import-untyped, unused-ignore]

if __name__ == "__main__":
    source, result = sys.argv[1:]
    with np.load(source) as data:
        pred, target = (torch.from_numpy(data[name]) for name in ("pred", "target"))
    torch.set_num_threads(1)
    milliseconds = []
    for _ in range(3):
        start = time.perf_counter()
        iou = box_iou_rotated(pred, target, aligned=True)
        milliseconds.append(1e3 * (time.perf_counter() - start))
    np.savez(result, iou=iou.numpy(), milliseconds=statistics.median(milliseconds))
