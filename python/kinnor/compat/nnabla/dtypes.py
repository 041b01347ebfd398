"""Element types of NumPy by their numbers in NNabla's files."""

from __future__ import annotations

import numpy as np

__all__ = ["int_to_np_dtype", "np_dtpye_to_int"]

#: The name is spelled as in NNabla. The numbers are the type numbers of NumPy's C interface.
np_dtpye_to_int: dict[type, int] = {
    bool: 0,
    np.byte: 1,
    np.ubyte: 2,
    np.short: 3,
    np.ushort: 4,
    np.int32: 5,
    np.uint32: 6,
    np.longlong: 9,
    np.int64: 9,
    np.ulonglong: 10,
    np.uint64: 10,
    np.float32: 11,
    np.float64: 12,
    np.longdouble: 13,
    np.float16: 23,
}

int_to_np_dtype: dict[int, type] = {number: kind for kind, number in np_dtpye_to_int.items()}
