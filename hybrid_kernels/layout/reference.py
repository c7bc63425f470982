"""The oracle: y = W x in float64, written for being right, not fast."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout.weights import Int4Weights

_CHUNK = 1 << 24  # weights held in float64 at a time: 128 MiB


def gemv(weights: Int4Weights, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """float64 [n]: the product of the dequantised weights and real x [k], some rows at a time.

    Codes, zero points and scales are exact in float64, so the error is that of one dot product of k float64 terms.
    BadInput when x is not real and finite or has another shape than [k].
    """
    vector = np.asarray(x)
    if vector.shape != (weights.k,):
        raise BadInput(f"x: shape {vector.shape}; it must be [{weights.k}], one value for each column of the weights")
    if vector.dtype.kind not in "iuf":
        raise BadInput(f"x: dtype {vector.dtype}; give real numbers")
    vector = vector.astype(np.float64)
    if not np.isfinite(vector).all():
        raise BadInput("x: holds NaN or infinite values; every value must be finite")
    y = np.empty(weights.n)
    step = max(1, _CHUNK // weights.k)
    for start in range(0, weights.n, step):
        rows = slice(start, min(weights.n, start + step))
        y[rows] = weights.dequantize(np.float64, rows) @ vector
    return y
