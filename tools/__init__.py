"""What turns records into the tables, figures and numbers of README and docs."""
