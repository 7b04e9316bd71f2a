"""DETR with a ResNet-50, on top of the model of transformers."""
