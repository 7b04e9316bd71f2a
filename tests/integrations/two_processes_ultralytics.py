"""One training step of YOLOv8 in one of two processes, for alone_ultralytics.py."""

import os
import sys
from pathlib import Path

import torch

BOXES = torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.6, 0.5, 0.5, 0.3]])


def half_batch_step(model, rank):
    """The loss of the image that belongs to a process, and one gradient."""
    torch.manual_seed(rank)
    batch = {"img": torch.rand(1, 3, 64, 64), "cls": torch.tensor([[float(rank)]])}
    batch |= {"bboxes": BOXES[rank : rank + 1], "batch_idx": torch.zeros(1)}
    loss = model(batch)[0].sum()
    loss.backward()
    return loss.item(), next(p.grad for p in model.parameters() if p.grad is not None).clone()


def main():
    """Build the same model in every process, make a step, write what it gave."""
    from ultralytics import YOLO
    from ultralytics.cfg import get_cfg

    from alphaiou.integrations.ultralytics import use_box_loss

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = YOLO("yolov8n.yaml").model.train()
    model.args, model.nc = get_cfg(), 80
    handle = use_box_loss("ciou:3")
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    loss, gradient = half_batch_step(wrapped, rank)
    torch.save((loss, gradient, handle.called), Path(sys.argv[1]) / f"{os.environ['RANK']}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
