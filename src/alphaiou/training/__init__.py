"""Training: the loop that every detector shares, checkpoints, evaluation."""
