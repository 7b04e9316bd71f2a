"""The losses: the kinds, modifiers, the formula as a function and as a module."""

from alphaiou.losses.functional import alpha_iou_loss
from alphaiou.losses.kinds import KINDS, Terms
from alphaiou.losses.modifiers import MODIFIERS, ScheduledInner, Wise
from alphaiou.losses.module import AlphaIoULoss, AlphaSchedule
from alphaiou.losses.quality import QUALITY_LOSSES, QualityLoss, quality_loss

__all__ = [
    "KINDS",
    "MODIFIERS",
    "QUALITY_LOSSES",
    "AlphaIoULoss",
    "AlphaSchedule",
    "QualityLoss",
    "ScheduledInner",
    "Terms",
    "Wise",
    "alpha_iou_loss",
    "quality_loss",
]
