"""YOLOv5 v4.0 in five sizes, n to x."""
