"""A training with torchvision's Faster R-CNN, and the one line that gives it another box loss."""

import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

from alphaiou import load_dataset
from alphaiou.integrations.torchvision import use_box_loss

torch.manual_seed(0)
dataset = load_dataset("shapes", "train")  # drawn as it is read; or the path of a data set
model = fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None,
    weights_backbone=None,
    num_classes=1 + len(dataset.index.classes),  # class 0 is the background
    min_size=128,
    max_size=128,
)
handle = use_box_loss(model, "giou:3", weight=10.0)  # the line
print(handle)

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    rows = [dataset[2 * step + i] for i in range(2)]
    images = [image / 255 for image, _ in rows]
    targets = [
        {"boxes": target["boxes"], "labels": target["labels"] + 1}
        for _, target in rows  # labels count from 1 here
    ]
    losses = model(images, targets)
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
    print(f"step {step}: " + ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items()))

handle.restore()  # the line out: torchvision's own loss again
print("own loss:", f"{model(images, targets)['loss_box_reg']:.3f}")
