"""The losses: terms, modifiers, the one formula, and its Module twin."""

from alphaiou.losses.formula import alpha_iou_loss
from alphaiou.losses.modifiers import MODIFIERS, Wise
from alphaiou.losses.module import AlphaIoULoss
from alphaiou.losses.schedule import AlphaSchedule
from alphaiou.losses.terms import KINDS, Terms

__all__ = [
    "KINDS",
    "MODIFIERS",
    "AlphaIoULoss",
    "AlphaSchedule",
    "Terms",
    "Wise",
    "alpha_iou_loss",
]
