"""One line changed: a training step with torchvision's CIoU, and with α-CIoU in its place."""

import torch
from torchvision.ops import complete_box_iou_loss

from alphaiou import alpha_iou_loss, box_iou


def train(box_loss: str, steps: int = 300) -> float:
    """Fit boxes to their targets through a linear layer; the mean IoU at the end."""
    torch.manual_seed(0)
    features, start = torch.randn(256, 32), torch.tensor([30.0, 30.0, 80.0, 80.0])
    target = start + features @ torch.randn(32, 4) + torch.randn(256, 4)
    head = torch.nn.Linear(32, 4)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    for _ in range(steps):
        pred = start + head(features)
        if box_loss == "torchvision":
            loss = complete_box_iou_loss(pred, target, reduction="mean")
        else:
            loss = alpha_iou_loss(pred, target, kind="ciou", alpha=3.0, reduction="mean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return box_iou(start + head(features), target).mean().item()


if __name__ == "__main__":
    print(f"torchvision's CIoU: mean IoU {train('torchvision'):.3f}")
    print(f"α-CIoU, α = 3:      mean IoU {train('alphaiou'):.3f}")
