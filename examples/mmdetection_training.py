"""A training with MMEngine, whose configuration names the box loss as MMDetection's do."""

import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.runner import Runner
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader

from alphaiou import load_dataset

# The first two lines are those of a configuration of MMDetection; its head has the loss_bbox.
config = Config.fromstring(
    """
custom_imports = dict(imports=["alphaiou.integrations.mmengine"])
loss_bbox = dict(type="AlphaIoULoss", kind="giou", alpha=3.0, loss_weight=2.0)
model = dict(type="OneBoxDetector", loss_bbox=loss_bbox)
train_cfg = dict(by_epoch=True, max_epochs=2)
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.1))
default_hooks = dict(checkpoint=None, logger=dict(type="LoggerHook", interval=2))
""",
    ".py",
)


@MODELS.register_module()
class OneBoxDetector(BaseModel):
    """In the place of a detector of MMDetection: finds one box in an image."""

    def __init__(self, loss_bbox: dict) -> None:
        super().__init__()
        self.features = torch.nn.Conv2d(3, 8, 5, stride=4)
        self.head = torch.nn.Linear(8 * 7 * 7, 4)
        self.loss_bbox = MODELS.build(loss_bbox)

    def forward(self, images: torch.Tensor, boxes: torch.Tensor, mode: str) -> dict:
        """The losses of a batch; ``mode`` is ``loss`` in a training."""
        found = self.head(self.features(images).relu().flatten(1)).sigmoid()
        centre, size = found.chunk(2, dim=1)
        pred = torch.cat([centre - size / 2, centre + size / 2], dim=1)
        weight = torch.ones(len(boxes))
        return {"loss_bbox": self.loss_bbox(pred, boxes, weight, avg_factor=len(boxes))}


dataset, rows = load_dataset("shapes", "train"), []  # drawn as it is read
for image, target in (dataset[i] for i in range(16)):
    small = interpolate(image[None] / 255, size=(32, 32))[0]
    rows.append((small, target["boxes"][0] / image.shape[-1]))

loader = DataLoader(rows, batch_size=4, shuffle=True)
settings = {name: config[name] for name in ("train_cfg", "optim_wrapper", "default_hooks")}
runner = Runner(config.model, "work", train_dataloader=loader, **settings)
print(runner.model.loss_bbox)
runner.train()
