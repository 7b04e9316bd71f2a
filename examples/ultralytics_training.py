"""A training with Ultralytics' YOLO, and the one line that gives it another box loss."""

from pathlib import Path

import yaml
from ultralytics import YOLO

from alphaiou import load_dataset
from alphaiou.data.formats.yolo import write_yolo
from alphaiou.integrations.ultralytics import use_box_loss

# Drawn images in the layout of Ultralytics; with a data set of your own, its data.yaml.
index = load_dataset("shapes", "train").index.take(range(16))
write_yolo(index, Path("shapes"), images="copy")
data = {"path": str(Path("shapes").resolve()), "train": "images/train", "val": "images/train"}
Path("shapes.yaml").write_text(yaml.safe_dump(data | {"names": dict(enumerate(index.classes))}))

handle = use_box_loss("ciou:3")  # the line; nothing else changes, on several devices either
print(handle)

model = YOLO("yolov8n.yaml")  # or another, or weights to start from
model.train(
    data="shapes.yaml",
    epochs=1,
    imgsz=64,
    batch=8,
    device="cpu",
    workers=0,
    amp=False,
    plots=False,
    project=str(Path("runs").resolve()),
)
handle.restore()  # the line out: CIoU again
