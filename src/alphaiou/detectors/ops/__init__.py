"""Operations of detectors: NMS, RoIAlign, assignment, batch norm with SiLU.

Each has a reference implementation in torch here and a Triton kernel of the same name in
``kernels``.
"""

import torch

from alphaiou.errors import install_hint
from alphaiou.numerics import TORCH

if TORCH < (2, 9):
    raise ImportError(
        f"the detectors and their training need torch 2.9 or newer, this is {torch.__version__}: "
        f"{install_hint('train')}. The losses and integrations work with this torch"
    )
