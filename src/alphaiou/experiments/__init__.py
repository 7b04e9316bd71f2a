"""What the losses are worth: the curves of the paper, simulations, and their figures and tables."""
