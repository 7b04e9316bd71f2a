"""Operations of detectors: NMS, RoIAlign, assignment, batch norm with SiLU.

Each has a reference implementation in torch here and a Triton kernel of the same name in
``kernels``.
"""
