"""Data sets: formats, a drawn set, checks, conversion, subsets and box noise."""
