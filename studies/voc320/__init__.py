"""Our study on voc320."""
