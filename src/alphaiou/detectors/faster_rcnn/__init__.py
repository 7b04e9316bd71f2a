"""Faster R-CNN R50-FPN."""
