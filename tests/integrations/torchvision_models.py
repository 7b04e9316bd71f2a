"""Small models of torchvision with random weights, and batches for them."""

import torch
from torchvision.models.detection import (
    FCOS,
    FasterRCNN,
    KeypointRCNN,
    MaskRCNN,
    RetinaNet,
)
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads
from torchvision.ops import MultiScaleRoIAlign

SIZE, CLASSES = 64, 5  # the first class of R-CNN is the background


class Backbone(torch.nn.Module):
    """Two levels of features."""

    out_channels = 32

    def __init__(self):
        super().__init__()
        self.fine = torch.nn.Conv2d(3, 32, 8, stride=8)
        self.coarse = torch.nn.Conv2d(32, 32, 2, stride=2)

    def forward(self, images):
        fine = self.fine(images).tanh()
        return {"0": fine, "1": self.coarse(fine).tanh()}


def rcnn(kind, **heads):
    anchors = AnchorGenerator(((16,), (32,)), ((0.5, 1.0, 2.0),) * 2)
    return kind(
        Backbone(),
        num_classes=CLASSES,
        rpn_anchor_generator=anchors,
        box_roi_pool=MultiScaleRoIAlign(["0", "1"], 3, 2),
        box_batch_size_per_image=64,
        **SIZES,
        **heads,
    )


SIZES = {"min_size": SIZE, "max_size": SIZE}
ANCHORS = {"anchor_generator": AnchorGenerator(((16, 24), (32, 48)), ((0.5, 1.0, 2.0),) * 2)}
POINTS = {"anchor_generator": AnchorGenerator(((8,), (16,)), ((1.0,),) * 2)}
POOL = MultiScaleRoIAlign(["0", "1"], 7, 2)
FAMILY = {
    "FasterRCNN": lambda: rcnn(FasterRCNN),
    "MaskRCNN": lambda: rcnn(
        MaskRCNN,
        mask_roi_pool=POOL,
        mask_head=MaskRCNNHeads(32, (256,), 1),
    ),
    "KeypointRCNN": lambda: rcnn(
        KeypointRCNN,
        keypoint_roi_pool=POOL,
        keypoint_head=KeypointRCNNHeads(32, (16,)),
        keypoint_predictor=KeypointRCNNPredictor(16, 3),
    ),
    "RetinaNet": lambda: RetinaNet(Backbone(), num_classes=CLASSES, **SIZES, **ANCHORS),
    "FCOS": lambda: FCOS(Backbone(), num_classes=CLASSES, **SIZES, **POINTS),
}


def build(name, seed=0):
    """A model with random weights, larger than those it starts with so that boxes differ."""
    torch.manual_seed(seed)
    model = FAMILY[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model.train()


def batch(*counts, seed=0):
    """Images and targets, with as many boxes in each as told."""
    generator = torch.Generator().manual_seed(seed)
    targets = []
    for count in counts:
        sides = 12 + 24 * torch.rand(count, 2, generator=generator)
        corners = (SIZE - sides) * torch.rand(count, 2, generator=generator)
        boxes = torch.cat([corners, corners + sides], dim=1)
        points = boxes[:, None, :2].expand(-1, 3, -1) + 2.0
        targets.append(
            {
                "boxes": boxes,
                "labels": torch.randint(1, CLASSES, (count,), generator=generator),
                "masks": torch.ones(count, SIZE, SIZE, dtype=torch.uint8),
                "keypoints": torch.cat([points, torch.ones(count, 3, 1)], dim=2),
            }
        )
    return list(torch.rand(len(counts), 3, SIZE, SIZE, generator=generator)), targets
