"""Any box loss in a training of torchvision or transformers: one line in, one line out."""
