"""Shape annotations of tensors and arrays.

jaxtyping checks them in the tests. Users do not need it: without it an annotation such as
``Float[Tensor, "pairs 4"]`` is just ``Tensor``.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Bool",
    "Float",
    "Float32",
    "Float64",
    "Int",
    "Int32",
    "Int64",
    "Integer",
    "Num",
    "Shaped",
    "UInt8",
]

try:
    from jaxtyping import (
        Bool,
        Float,
        Float32,
        Float64,
        Int,
        Int32,
        Int64,
        Integer,
        Num,
        Shaped,
        UInt8,
    )
except ImportError:

    class _Unchecked:
        """Stands in for every annotation: the array type, without its shape."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:  # noqa: ANN401
            return item[0]

    globals().update(dict.fromkeys(__all__, _Unchecked))
