"""The cases of single nodes of the ONNX standard, from the package `onnx`."""

import importlib
import pkgutil
import warnings

import numpy as np
import onnx.backend.test.case.node as node_cases
from onnx import TensorProto, helper, numpy_helper

from kinnor.onnx.read.tables import TABLE

KNOWN = {"bool", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""Element types of inputs and outputs that tests of the standard may have here."""

SLOW = {"averagepool", "lppool", "maxpool"}
"""Modules of cases that take half a minute to generate. The converted networks cover pooling."""


def cases_of(table):
    """Returns the cases of the modules named after the operators of a table."""
    names = {name.lower() for domain, name in table if not domain}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node_cases.__path__):
            if module.name.replace("_", "") in names - SLOW:
                importlib.import_module(f"{node_cases.__name__}.{module.name}")
    found = []
    for case in node_cases._NodeTestCases:
        operators = [node.op_type for node in case.model.graph.node]
        is_here = any(("", name) in table for name in operators) and all(
            ("", name) in TABLE or ("", name) in table for name in operators
        )
        if is_here and "_expanded" not in case.name and types_of(case.model) <= KNOWN:
            found.append(case)
    return found


def types_of(model):
    """Returns the element types of the inputs and outputs of a model."""

    def of(held):
        """Returns the element type of a value, also inside of sequences and optionals."""
        kind = held.WhichOneof("value")
        if kind == "tensor_type":
            return np.dtype(helper.tensor_dtype_to_np_dtype(held.tensor_type.elem_type)).name
        return of(getattr(held, kind).elem_type)

    return {of(x.type) for x in [*model.graph.input, *model.graph.output]}


def array(x):
    """Returns a tensor of a case as an array."""
    if x is None or isinstance(x, list):
        return x
    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x)
