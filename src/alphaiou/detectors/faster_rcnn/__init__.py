"""Faster R-CNN with a ResNet and a feature pyramid."""
