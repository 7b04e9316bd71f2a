"""Trained detectors in use: weights files, prediction, evaluation, drawing."""
