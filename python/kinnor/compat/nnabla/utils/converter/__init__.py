"""NNabla's converter: files of NNabla and ONNX from one form to another.

Files of TensorFlow and for NNabla's C runtime are neither read nor written.
"""

from __future__ import annotations

from .commands import convert_files, dump_files
from .supported_info import extensions, formats
from .utils import (
    calc_shape_size,
    func_set_import_config,
    func_set_import_nnp,
    func_set_nnabla_support,
    get_category_info,
    get_function_info,
    search_network,
    select_executor,
)

__all__ = [
    "calc_shape_size",
    "convert_files",
    "dump_files",
    "extensions",
    "formats",
    "func_set_import_config",
    "func_set_import_nnp",
    "func_set_nnabla_support",
    "get_category_info",
    "get_function_info",
    "search_network",
    "select_executor",
]
