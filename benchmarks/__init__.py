"""Timing and fuzz benchmarks, run from a clone, and the records that they wrote."""
