"""DETR R50."""
