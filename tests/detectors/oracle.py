"""YOLOv5's assignment and loss for one box, anchor and cell at a time, in plain Python floats."""

import math


def positives(targets, anchors, stride, rows, columns):
    """The pairs of one layer: image, row, column, anchor, box from the cell's corner, label.

    ``targets`` are tuples of image, label and a box ``xyxy`` in pixels.
    """
    pairs = []
    for image, label, (x1, y1, x2, y2) in targets:
        x, y = (x1 + x2) / 2 / stride, (y1 + y2) / 2 / stride
        w, h = (x2 - x1) / stride, (y2 - y1) / stride
        column, row = min(int(x), columns - 1), min(int(y), rows - 1)
        cells = [(column, row)]
        if x - column < 0.5 and column > 0:
            cells.append((column - 1, row))
        if x - column > 0.5 and column + 1 < columns:
            cells.append((column + 1, row))
        if y - row < 0.5 and row > 0:
            cells.append((column, row - 1))
        if y - row > 0.5 and row + 1 < rows:
            cells.append((column, row + 1))
        for anchor, (wide, high) in enumerate(anchors):
            ratios = [w * stride / wide, h * stride / high]
            if max(max(ratio, 1 / ratio) for ratio in ratios) >= 4:
                continue
            for i, j in cells:
                pairs.append((image, j, i, anchor, (x - i, y - j, w, h), label))
    return pairs


def sigmoid(value):
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def cross_entropy(logit, aim):
    return max(logit, 0) - logit * aim + math.log1p(math.exp(-abs(logit)))


def decoded(raw, anchor, stride):
    x, y, w, h = (2 * sigmoid(value) for value in raw[:4])
    return x - 0.5, y - 0.5, w * w * anchor[0] / stride, h * h * anchor[1] / stride


def iou(first, second):
    sides = []
    for axis in (0, 1):
        low = max(first[axis] - first[axis + 2] / 2, second[axis] - second[axis + 2] / 2)
        high = min(first[axis] + first[axis + 2] / 2, second[axis] + second[axis + 2] / 2)
        sides.append(max(high - low, 0))
    common = sides[0] * sides[1]
    return common / (first[2] * first[3] + second[2] * second[3] - common)


def loss(
    outputs,
    targets,
    anchors,
    strides,
    *,
    alpha,
    box_gain=0.05,
    similarity=False,
    objectness_alpha=1.0,
):
    """The parts of the loss with 1 - IoU^α for boxes; outputs are nested lists."""
    box = objectness = classes = 0.0
    num_classes = len(outputs[0][0][0][0][0]) - 5
    for output, layer_anchors, stride, balance in zip(
        outputs, anchors, strides, (4.0, 1.0, 0.4), strict=True
    ):
        rows, columns = len(output[0]), len(output[0][0])
        pairs = positives(targets, layer_anchors, stride, rows, columns)
        aims, layer_box, layer_class = {}, 0.0, 0.0
        for image, row, column, anchor, target, label in pairs:
            raw = output[image][row][column][anchor]
            overlap = iou(decoded(raw, layer_anchors[anchor], stride), target)
            layer_box += 1 - overlap**alpha
            place = (image, row, column, anchor)
            quality = (overlap**alpha if similarity else overlap) ** objectness_alpha
            aims[place] = max(aims.get(place, 0.0), quality)
            layer_class += sum(
                cross_entropy(raw[5 + name], float(name == label)) for name in range(num_classes)
            )
        if pairs:
            box += layer_box / len(pairs)
            classes += layer_class / len(pairs) / num_classes if num_classes > 1 else 0.0
        total = sum(
            cross_entropy(cell[4], aims.get((image, row, column, anchor), 0.0))
            for image, rows_ in enumerate(output)
            for row, columns_ in enumerate(rows_)
            for column, anchors_ in enumerate(columns_)
            for anchor, cell in enumerate(anchors_)
        )
        objectness += balance * total / (len(output) * rows * columns * len(layer_anchors))
    batch, size = len(outputs[0]), strides[0] * max(len(outputs[0][0]), len(outputs[0][0][0]))
    return {
        "box": batch * box_gain * box,
        "objectness": batch * (size / 640) ** 2 * objectness,
        "class": batch * 0.5 * num_classes / 80 * classes,
    }
