"""Studies: a grid of runs, their records, statistics, tables, figures, one HTML report."""
