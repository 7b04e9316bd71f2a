"""YOLOv5 v4.0, n to x."""
