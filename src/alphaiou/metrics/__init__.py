"""Scores of detections: COCO's, VOC's and the paper's rules over one evaluator."""
