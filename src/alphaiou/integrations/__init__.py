"""Any box loss in a training of somebody else's framework: one line in, one line out."""
