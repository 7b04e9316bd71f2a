"""A training with RF-DETR, and the one line that gives it another box loss."""

import torch
from rfdetr.config import RFDETRNanoConfig, TrainConfig
from rfdetr.models import build_criterion_from_config, build_model_from_config
from rfdetr.utilities.tensors import NestedTensor
from torch.nn.functional import interpolate

from alphaiou import convert_boxes, load_dataset
from alphaiou.integrations.rfdetr import use_box_loss

SIDE = 64
handle = use_box_loss("giou:3")  # the line; RFDETRNano().train(...) needs no other
print(handle)

# What RFDETRNano().train(dataset_dir=...) does, on a small scale and from random weights.
torch.manual_seed(0)
dataset = load_dataset("shapes", "train")  # drawn as it is read; or the path of a data set
model_config = RFDETRNanoConfig(
    num_classes=len(dataset.index.classes),
    pretrain_weights="none.pth",  # not read: build_model_from_config gives random weights
    device="cpu",
    resolution=SIDE,
    positional_encoding_size=SIDE // 16,
    num_queries=20,
    num_select=20,
    group_detr=2,
)
configs = model_config, TrainConfig(dataset_dir=".", output_dir=".")
model = build_model_from_config(*configs).train()
criterion, _ = build_criterion_from_config(*configs)

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    images, targets = [], []
    for image, target in (dataset[2 * step], dataset[2 * step + 1]):
        boxes = convert_boxes(target["boxes"], "xyxy", "cxcywh") / image.shape[-1]  # from 0 to 1
        targets.append({"boxes": boxes, "labels": target["labels"]})
        images.append(interpolate(image[None] / 255, size=(SIDE, SIDE), mode="bilinear"))
    padding = torch.zeros(len(images), SIDE, SIDE, dtype=torch.bool)
    losses = criterion(model(NestedTensor(torch.cat(images), padding), targets), targets)
    total = sum(losses[name] * factor for name, factor in criterion.weight_dict.items())
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    print(f"step {step}: loss {total:.3f}, boxes {losses['loss_giou']:.3f}")

handle.restore()  # the line out: GIoU again
