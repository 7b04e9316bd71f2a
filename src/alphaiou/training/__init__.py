"""Training: recipes, the loop that all detectors share, the optimiser, checkpoints, records."""
