"""Studies: a grid of runs, their records, statistics, tables, figures and one report."""
