"""Inference with trained detectors: weights files, prediction, evaluation, drawing."""
