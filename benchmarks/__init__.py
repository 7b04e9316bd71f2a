"""Every timing and fuzz record: harness, scripts, records."""
