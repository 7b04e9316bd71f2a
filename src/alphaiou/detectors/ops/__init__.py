"""Operations of detectors: NMS, RoIAlign, assignment, norm and SiLU."""
