"""The losses: the kinds, modifiers, the formula as a function and as a module."""

from alphaiou.losses.functional import alpha_iou_loss
from alphaiou.losses.kinds import KINDS, Terms
from alphaiou.losses.modifiers import MODIFIERS, Wise
from alphaiou.losses.module import AlphaIoULoss, AlphaSchedule

__all__ = [
    "KINDS",
    "MODIFIERS",
    "AlphaIoULoss",
    "AlphaSchedule",
    "Terms",
    "Wise",
    "alpha_iou_loss",
]
