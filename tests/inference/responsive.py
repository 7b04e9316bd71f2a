"""Untrained detectors whose outputs depend on the image: scores of all sizes, without ties."""

import torch
from torch import nn

from alphaiou.detectors import YOLOv5, build_detector

CLASSES, SIDE = 4, 64


def images(side=SIDE):
    """Noise of several scales, some with grey padding."""
    noise = torch.randint(0, 256, (16, 3, side, side), dtype=torch.uint8)
    mixed = noise.clone()
    for scale in (2, 4, 8):
        coarse = noise[scale::2, :, : side // scale, : side // scale].float()
        mixed[scale::2] = nn.functional.interpolate(coarse, scale_factor=scale).byte()
    mixed[8:, :, : side // 4] = mixed[8:, :, -side // 4 :] = 114
    return mixed


@torch.no_grad()
def yolov5n():
    """YOLOv5n with calibrated norms and a head of larger weights."""
    torch.manual_seed(0)
    detector = build_detector("yolov5n", CLASSES)
    assert isinstance(detector, YOLOv5)
    for norm in detector.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = 1.0
    for _ in range(2):
        outputs = detector.train().network(images())
    for head, output in zip(detector.network.head, outputs, strict=True):
        head.weight /= output.std(dim=(0, 1, 2)).flatten()[:, None, None, None]
        head.bias[:] = head.bias.view(3, -1).index_fill(1, torch.tensor([4]), 0.0).flatten()
    return detector.eval()


@torch.no_grad()
def faster_rcnn():
    """Faster R-CNN with a small ResNet, few proposals, and heads of larger weights."""
    from alphaiou.detectors.faster_rcnn import network

    torch.manual_seed(0)
    detector = network.faster_rcnn(
        CLASSES,
        "l1",
        backbone="resnet18",
        image_size=200,
        pre_nms=60,
        post_nms=60,
        head_width=32,
    ).eval()
    for layer in (detector.rpn.head.cls_logits, detector.rpn.head.bbox_pred):
        layer.weight *= 20
    predictor = detector.roi_heads.box_predictor
    levels, _, _, _, proposals = detector._first_stage(images())
    logits, deltas = detector.roi_heads(levels, proposals.boxes)
    predictor.cls_score.weight *= 2.0 / logits.std()
    predictor.bbox_pred.weight *= 1.0 / deltas.std()
    return detector


@torch.no_grad()
def detr():
    """DETR with one layer each and a classifier of larger weights."""
    from alphaiou.detectors.detr import network

    torch.manual_seed(0)
    detector = network.detr(CLASSES, encoder_layers=1, decoder_layers=1).eval()
    logits, _ = detector.network(images())
    detector.network.model.class_labels_classifier.weight *= 1.5 / logits.std()
    return detector
