"""Data set layouts: how each is recognised, read and written."""
