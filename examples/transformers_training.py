"""A training with transformers' RT-DETR, and the one line that gives it another box loss."""

import torch
from torch.nn.functional import interpolate
from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

from alphaiou import convert_boxes, load_dataset
from alphaiou.integrations.transformers import use_box_loss

torch.manual_seed(0)
dataset = load_dataset("shapes", "train")  # drawn as it is read; or the path of a data set
backbone = RTDetrResNetConfig(
    embedding_size=16,
    hidden_sizes=[16, 32, 64, 128],
    depths=[1, 1, 1, 1],
    layer_type="basic",
    out_features=["stage2", "stage3", "stage4"],
)
config = RTDetrConfig(
    backbone_config=backbone,
    encoder_in_channels=[32, 64, 128],
    encoder_hidden_dim=64,
    decoder_in_channels=[64, 64, 64],
    d_model=64,
    num_queries=30,
    decoder_layers=2,
    num_labels=len(dataset.index.classes),
)
model = RTDetrForObjectDetection(config)
handle = use_box_loss(model, "giou:3")  # the line; a transformers.Trainer needs no other
print(handle)

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(4):
    images, labels = [], []
    for image, target in (dataset[2 * step], dataset[2 * step + 1]):
        height, width = image.shape[-2:]
        boxes = convert_boxes(target["boxes"], "xyxy", "cxcywh")
        boxes = boxes / torch.tensor([width, height, width, height])  # from 0 to 1
        labels.append({"class_labels": target["labels"], "boxes": boxes})
        images.append(interpolate(image[None] / 255, size=(160, 160), mode="bilinear"))
    output = model(torch.cat(images), labels=labels)
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    print(f"step {step}: loss {output.loss:.3f}, boxes {output.loss_dict['loss_giou']:.3f}")

handle.restore()  # the line out: GIoU again
