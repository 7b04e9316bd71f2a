"""Measuring the losses: their speed (``losses``), and what hard boxes do to them (``fuzz``)."""
