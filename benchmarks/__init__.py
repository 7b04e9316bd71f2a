"""Timing and fuzz benchmarks, run from a clone, and their records."""
