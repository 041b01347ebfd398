"""A truth value in the place of another argument is refused by functions, layers and initializers of Python."""

import inspect
import re

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.initializer as I
import kinnor.layers as L
import kinnor.parametric_functions as PF
from kinnor import _core


def array(*shape):
    """A variable of ones."""
    return nn.Variable.from_numpy_array(np.ones(shape, np.float32))


IMAGES, MATRIX, SEQUENCES = (2, 4, 8, 8), (4, 4), (3, 2, 4)
"""Shapes of inputs."""
INPUTS = {
    "scatter_nd": {"data": (2,), "indices": (1, 2)},
    "gather_nd": {"data": (8,), "indices": (1, 2)},
    "bit_shift": {"x": (2,), "shift": (2,)},
    "stft": {"x": (2, 64), "window_size": 8, "stride": 4, "fft_size": 8},
    "istft": {"y_r": (1, 5, 9), "y_i": (1, 5, 9), "window_size": 8, "stride": 4, "fft_size": 8},
    "fused_convolution": {"weight": (3, 4, 3, 3)},
    "multi_head_attention": {
        "query": SEQUENCES,
        "key": SEQUENCES,
        "value": SEQUENCES,
        "weight": MATRIX,
        "num_heads": 2,
    },
    "onnx_non_max_suppression": {"boxes": (1, 3, 4), "scores": (1, 2, 3)},
    "onnx_resize": {"scales": [1.0, 1.0, 2.0, 2.0]},
    "transformer": {"src": SEQUENCES, "tgt": SEQUENCES, "embed_dim": 4, "num_heads": 2, "layers": 1},
    "transformer_encode": {"src": SEQUENCES, "embed_dim": 4, "num_heads": 2},
    "transformer_decode": {"tgt": SEQUENCES, "memory": SEQUENCES, "embed_dim": 4, "num_heads": 2},
    "deformable_convolution": {"offset": (2, 18, 8, 8), "kernel": (3, 3), "pad": (1, 1)},
    "embed": {"inp": (2, 3)},
    "lstm": {"x": (5, 2, 4), "h": (2, 1, 2, 3), "c": (2, 1, 2, 3)},
    "gru": {"x": (5, 2, 4), "h": (2, 1, 2, 3)},
    "rnn": {"x": (5, 2, 4), "h": (2, 1, 2, 3)},
    "lstm_cell": {"x": (2, 3), "h": (2, 4), "c": (2, 4), "state_size": 4},
    "Conv": {"kernel_size": (3, 3)},
    "ConvTranspose": {"kernel_size": (3, 3)},
    "MultiHeadAttention": {"embed_dim": 4},
    "MultiheadAttention": {"embed_dim": 4},
    "BatchNorm": {"num_features": 4},
    "UniformInitializer": {"lim": (0, 1)},
    "sync_batch_normalization": {"comm": None},
}
"""Shapes and values of arguments, by the function and the argument or the end of its name."""
FREE = {"bool", "Any", "ArrayLike", "object"}
"""Types that include truth values."""
EXEMPT = {
    *(("mod2", "x0"), ("mod2", "x1"), ("clip_by_value", "x")),  # Numbers beside an array are constants.
    ("quantize_linear", "dtype"),
    *((name, "n_outputs") for name in ("batch_normalization", "fused_batch_normalization", "slice")),  # without effect
    ("sync_batch_normalization", "n_outputs"),
    *((name, "num_layers") for name in ("gru", "lstm", "rnn")),  # without effect
    ("calc_normal_std_he_backward", "inmaps"),  # without influence
    ("calc_normal_std_he_forward", "outmaps"),
}


def callables():
    """The functions that are written in Python, the parametric functions, layers and initializers, by name."""
    for module, left_out in (
        (F, set()),
        (PF, {"parametric_function_api"}),
        (L, {"Module", "ModuleDict", "ModuleList", "Sequential"}),
        (I, {"Initializer", "BaseInitializer"}),
    ):
        for name in sorted(set(module.__all__) - left_out):
            found = getattr(module, name)
            if inspect.isfunction(found) or (module is not F and inspect.isclass(found)):
                yield pytest.param(name, found, id=f"{module.__name__.rpartition('.')[2]}.{name}")


def given(name, parameter):
    """A value that an argument accepts."""
    for end, value in INPUTS.get(name, {}).items():
        if parameter.name.endswith(end):
            is_shape = re.match(r"T\b|Variable", str(parameter.annotation)) and isinstance(value, tuple)
            return array(*value) if is_shape else value
    if parameter.default is not parameter.empty:
        return parameter.default
    kind = str(parameter.annotation)
    if kind.startswith(("T", "Variable")):
        return array(*IMAGES)
    return np.sin if kind.startswith("Callable") else "" if kind == "str" else 2


@pytest.mark.parametrize(("name", "function"), list(callables()))
def test_truth_values_in_the_place_of_others_are_refused(name, function):
    parameters = [
        each for each in inspect.signature(function).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    for at, parameter in enumerate(parameters):
        types = set(re.split(r" \| ", re.sub(r"\[.*?\](?= \||$)", "", str(parameter.annotation))))
        if types & FREE or (name, parameter.name) in EXEMPT:
            continue
        nn.clear_parameters()
        before = [given(name, each) for each in parameters[:at]]
        rest = {each.name: given(name, each) for each in parameters[at + 1 :]}
        after = {each.name: rest[each.name] for each in parameters[at + 1 :] if rest[each.name] is not each.default}
        with pytest.raises((TypeError, ValueError)) as raised:
            function(*before, True, **after)
            pytest.fail(f"{name} takes True as {parameter.name}")
        told = str(raised.value)
        assert isinstance(raised.value, nn.Error), f"{parameter.name}: {told}"
        assert any(text in told for text in ("True", "bool", f"`{parameter.name}`")), f"{parameter.name}: {told}"


def test_truth_values_count_as_numbers_under_names_of_nnabla(monkeypatch):
    """NNabla reads `True` as 1."""
    x = array(2, 4)
    monkeypatch.setattr(_core, "is_nnabla", lambda: True)
    assert F.slice(x, True).shape == (2, 3)
    assert F.patch_correlation(array(1, 2, 3, 4), array(1, 2, 3, 4), True).shape == (1, 1, 1, 3, 4)
    assert F.clip_by_value(x, False, True).shape == (2, 4)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x, y: F.slice(x, True), "slice: expected `start` to be integers or None, got True"),
        (
            lambda x, y: F.patch_correlation(x, y, True),
            "patch_correlation: expected `patch` to be a whole number, got ",
        ),
        (
            lambda x, y: L.Conv2d(3, 4, 3, True),
            "Conv2d: expected `stride` to be a whole number or a tuple of them, got ",
        ),
        (lambda x, y: L.LayerNorm(4, True), "LayerNorm: expected `eps` to be a number, got True"),
    ],
)
def test_errors_name_the_argument(call, told):
    with pytest.raises(nn.Error, match=re.escape(told)):
        call(array(*IMAGES), array(*IMAGES))
