"""The drawn data set."""
