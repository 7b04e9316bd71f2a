"""Detect objects with an exported detector: numpy and onnxruntime, nothing else."""

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("best.onnx")
image = np.load("photo.npy")  # (height, width, 3), uint8, RGB
side = session.get_inputs()[0].shape[2]
scale = side / max(image.shape[:2])
height, width = (max(round(length * scale), 1) for length in image.shape[:2])
top, left = (side - height) // 2, (side - width) // 2
rows, columns = ((np.arange(length) / scale).astype(int) for length in (height, width))
square = np.full((side, side, 3), 114, np.uint8)
square[top : top + height, left : left + width] = image[rows][:, columns]
boxes, scores, labels = session.run(None, {"images": square.transpose(2, 0, 1)[None]})

found = scores > 0
corners = (boxes[found] - [left, top, left, top]) / scale
print(np.column_stack([labels[found], scores[found], corners]).tolist())
