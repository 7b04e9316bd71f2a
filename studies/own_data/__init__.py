"""Small data sets of a user: this package beside Ultralytics."""
