"""Oriented boxes of data sets as arrays; torch is imported only for sets that have them."""

from __future__ import annotations

import numpy as np

from alphaiou._shapes import Float64


def corners_of(boxes: Float64[np.ndarray, "n 5"]) -> Float64[np.ndarray, "n 4 2"]:
    """The corners of oriented boxes, around the box.

    Examples:
        >>> corners_of(np.array([[3.0, 3.0, 4.0, 2.0, 0.0]]))[0].tolist()
        [[1.0, 2.0], [5.0, 2.0], [5.0, 4.0], [1.0, 4.0]]
    """
    import torch

    from alphaiou.oriented import oriented_to_corners

    corners: np.ndarray = oriented_to_corners(torch.from_numpy(boxes)).numpy()
    return corners


def boxes_around(corners: Float64[np.ndarray, "n 4 2"]) -> Float64[np.ndarray, "n 5"]:
    """The smallest oriented box around four points each."""
    import torch

    from alphaiou.oriented import corners_to_oriented

    boxes: np.ndarray = corners_to_oriented(torch.from_numpy(corners)).numpy()
    return boxes


def extents(corners: Float64[np.ndarray, "n 4 2"]) -> Float64[np.ndarray, "n 4"]:
    """The smallest axis-aligned box around four points each, as ``xyxy``; NaN where one is."""
    return np.concatenate([corners.min(1), corners.max(1)], axis=1)
