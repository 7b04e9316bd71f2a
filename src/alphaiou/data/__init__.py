"""Data sets: readers and writers of three layouts, box noise, subsets, a drawn set, checks."""
