"""How many boxes of the simulation come near their target and are thrown off it again.

python -m studies.simulate.lost_boxes | tee studies/simulate/lost-boxes.txt
"""

import torch

from alphaiou import alpha_iou_loss, box_iou
from alphaiou.simulate import CENTER, MIN_SIDE, SimulationSettings, anchor_points, cases_at

NEAR = 0.5


def final_and_best(anchors, target, settings, kind, alpha):
    """The last IoU of every box, and the best it ever had."""
    boxes, iou = anchors, box_iou(anchors, target, box_format="cxcywh")
    best = iou
    for iteration in range(settings.iterations):
        leaf = boxes.detach().requires_grad_()
        loss = alpha_iou_loss(leaf, target, kind=kind, alpha=alpha, box_format="cxcywh")
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        boxes = boxes - settings.step(iteration) * (2 - iou)[..., None] * gradient
        boxes = torch.cat((boxes[..., :2], boxes[..., 2:].clamp(min=MIN_SIDE)), dim=-1)
        iou = box_iou(boxes, target, box_format="cxcywh")
        best = torch.maximum(best, iou)
    return iou, best


def main():
    torch.set_num_threads(1)
    settings = SimulationSettings(points=5000)
    points = anchor_points(settings)
    start = box_iou(*cases_at(points), box_format="cxcywh")
    print(f"all boxes: {(start == 0).float().mean():.1%} start without overlap", end=", ")
    print(f"mean IoU at the start {start.mean():.3f}")
    anchors, target = cases_at(points[(points - CENTER).norm(dim=-1) <= NEAR])
    for kind, alpha in (("iou", 1.0), ("iou", 3.0), ("diou", 1.0), ("diou", 3.0)):
        final, best = final_and_best(anchors, target, settings, kind, alpha)
        arrived = best >= 0.5
        lost = (final[arrived] == 0).float().mean()
        print(
            f"{kind}:{alpha:g}, start within {NEAR}: {arrived.float().mean():.1%} reach IoU 0.5,",
            end="",
        )
        print(f" {lost:.1%} of these end at IoU 0")


if __name__ == "__main__":
    main()
