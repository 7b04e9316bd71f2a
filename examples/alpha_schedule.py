"""α from 1 to 3 over a training, in a compiled step that is compiled once."""

import torch

from alphaiou import AlphaIoULoss, AlphaSchedule, box_iou

criterion = AlphaIoULoss("diou", AlphaSchedule(1.0, 3.0, "cosine"))
boxes = torch.tensor([[10.0, 10.0, 50.0, 60.0]]).repeat(64, 1) + torch.randn(64, 4)
target = torch.tensor([[12.0, 8.0, 48.0, 62.0]]).repeat(64, 1)
boxes.requires_grad_()

step = torch.compile(criterion, backend="aot_eager")  # drop the backend for the fast one
epochs = 5
for epoch in range(epochs + 1):
    criterion.set_progress(epoch / epochs)
    loss = step(boxes, target)
    loss.backward()
    iou = box_iou(boxes, target).mean().item()
    print(f"epoch {epoch}: α {criterion.alpha.item():.2f}, loss {loss.item():.3f}, IoU {iou:.3f}")
    with torch.no_grad():
        boxes -= 1000 * boxes.grad
        boxes.grad = None
