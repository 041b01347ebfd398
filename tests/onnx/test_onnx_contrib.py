"""ONNX: operators of `com.microsoft`, compared with ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper
from onnx_runtime import compared, model_of

import kinnor as nn
import kinnor.onnx

RNG = np.random.default_rng(11)
DOMAIN = "com.microsoft"
"""The domain of Microsoft's operators."""


def real(*shape):
    """Returns random normal numbers in float32."""
    return RNG.standard_normal(shape).astype(np.float32)


def levels(dtype, *shape):
    """Returns random 8-bit levels over almost the full range of the type."""
    found = np.iinfo(dtype)
    return RNG.integers(found.min + 1, found.max, shape).astype(dtype)


def node(name, inputs, outputs="y", domain=DOMAIN, **attributes):
    """Returns a node. Names are separated by blanks; `-` is an input that is left out."""
    given = ["" if each == "-" else each for each in inputs.split()]
    return helper.make_node(name, given, outputs.split(), domain=domain, **attributes)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
@pytest.mark.parametrize("adds", [False, True])
def test_fused_convolutions(activation, adds):
    """`FusedConv` agrees for each activation, with and without an array to add."""
    numbers = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.7], "HardSigmoid": [0.3, 0.4]}.get(activation, [])
    made = node(
        "FusedConv",
        "x w b z" if adds else "x w b",
        activation=activation,
        pads=[1, 1, 1, 1],
        strides=[2, 2],
        **({"activation_params": numbers} if numbers else {}),
    )
    feeds = [{"x": real(n, 3, 8, 6), **({"z": real(n, 4, 4, 3)} if adds else {})} for n in (1, 2)]
    compared([made], feeds, ["y"], {"w": real(4, 3, 3, 3), "b": real(4)})


@pytest.mark.parametrize("flags", [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 1, 1)])
def test_fused_products(flags):
    """`FusedMatMul` agrees for several combinations of transposition flags."""
    names = ["transA", "transB", "transBatchA", "transBatchB"]
    made = node("FusedMatMul", "a b", alpha=0.5, **dict(zip(names, flags, strict=True)))

    def factor(first, last, is_transposed, is_batch_last, n):
        """Returns random matrices whose axes are in the order that the attributes of the node say."""
        rows, columns = (last, first) if is_transposed else (first, last)
        return real(rows, n, columns) if is_batch_last else real(n, rows, columns)

    feeds = [
        {"a": factor(m, 4, flags[0], flags[2], n), "b": factor(4, 5, flags[1], flags[3], n)}
        for n, m in ((2, 3), (3, 7))
    ]
    compared([made], feeds, ["y"])


def test_fused_gemm():
    """`FusedGemm` with an activation agrees with ONNX Runtime."""
    made = node("FusedGemm", "a b c", activation="LeakyRelu", activation_alpha=0.3, transB=1, alpha=0.5, beta=2.0)
    compared([made], [{"a": real(n, 4)} for n in (1, 3)], ["y"], {"b": real(5, 4), "c": real(5)})


@pytest.mark.parametrize("name", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"])
def test_gelus(name):
    """Each variant of GELU agrees with ONNX Runtime, with a bias where the operator takes one."""
    made = node(name, "x b" if name in ("BiasGelu", "FastGelu") else "x")
    compared([made], [{"x": real(n, 5, 4)} for n in (1, 3)], ["y"], {"b": real(4)} if len(made.input) > 1 else {})


def test_small_operators():
    """`Inverse`, `ExpandDims` and `Trilu` agree with ONNX Runtime."""
    compared([node("Inverse", "x")], [{"x": real(n, 3, 3) + 3 * np.eye(3, dtype=np.float32)} for n in (1, 2)], ["y"])
    compared([node("ExpandDims", "x axis")], [{"x": real(n, 3)} for n in (1, 2)], ["y"], {"axis": np.int32(-1)})
    compared([node("Trilu", "x", upper=0)], [{"x": real(n, 4)} for n in (2, 5)], ["y"])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("per_column", [False, True])
def test_products_of_levels(dtype, per_column):
    """Matrix products of 8-bit levels agree, with scales for the matrix or for each column."""
    shape = (5,) if per_column else ()
    constants = {
        "b": levels(dtype, 4, 5),
        "bs": (RNG.random(shape) * 0.1 + 0.01).astype(np.float32),
        "bz": levels(dtype, *shape) if shape else np.array(levels(dtype, 1)[0]),
        "bias": real(5),
    }
    compared(
        [node("DynamicQuantizeMatMul", "a b bs bz bias")], [{"a": real(n, 3, 4)} for n in (1, 2)], ["y"], constants
    )
    feeds = [{"a": levels(np.uint8, n, 4)} for n in (1, 3)]
    scales = {"as": np.float32(0.03), "az": np.uint8(7)}
    compared([node("MatMulIntegerToFloat", "a b as bs az bz bias")], feeds, ["y"], {**constants, **scales})


def quantized(**names):
    """Returns random scales and zero points by name: `x=uint8` gives `xs` and `xz`."""
    found = {}
    for name, dtype in names.items():
        found[f"{name}s"] = np.float32(RNG.random() * 0.05 + 0.01)
        found[f"{name}z"] = np.array(levels(dtype, 1)[0] // 4, dtype)
    return found


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_layers_of_levels(is_last, dtype):
    """Pooling and convolutions on 8-bit levels agree with ONNX Runtime."""

    def images(n):
        """Returns n images of 8-bit levels in the layout of the node."""
        return levels(dtype, n, 6, 6, 4) if is_last else levels(dtype, n, 4, 6, 6)

    feeds = [{"x": images(n)} for n in (1, 2)]
    held = quantized(x=dtype, y=dtype)
    flag = {"channels_last": int(is_last)}
    pool = node("QLinearAveragePool", "x xs xz ys yz", kernel_shape=[2, 2], strides=[2, 2], **flag)
    compared([pool], feeds, ["y"], held, level=1)
    compared([node("QLinearGlobalAveragePool", "x xs xz ys yz", **flag)], feeds, ["y"], held, level=1)
    weight = {
        "w": levels(np.int8, 5, 4, 3, 3),
        "ws": np.float32(0.02),
        "wz": np.int8(0),
        "b": levels(np.int16, 5).astype(np.int32),
    }
    conv = node("QLinearConv", "x xs xz w ws wz ys yz b", pads=[1, 1, 1, 1], **flag)
    compared([conv], feeds, ["y"], {**held, **weight}, level=1)
    if is_last:
        made = node("NhwcMaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        compared([made], feeds, ["y"])


def test_elementwise_operators_of_levels():
    """Elementwise operators of 8-bit levels agree to one level."""
    held = quantized(a=np.uint8, b=np.uint8, y=np.uint8)
    feeds = [{"a": levels(np.uint8, n, 3), "b": levels(np.uint8, n, 3)} for n in (1, 4)]
    for name in ("QLinearAdd", "QLinearMul"):
        compared([node(name, "a as az b bs bz ys yz")], feeds, ["y"], held, level=1)
    flags = [{"c": RNG.random((n, 3)) > 0.5, **feed} for n, feed in zip((1, 4), feeds, strict=True)]
    compared([node("QLinearWhere", "c a as az b bs bz ys yz")], flags, ["y"], held, level=1)
    compared([node("QLinearConcat", "ys yz a as az b bs bz", axis=0)], feeds, ["y"], held, level=1)
    one = [{"a": feed["a"]} for feed in feeds]
    for name in ("QLinearSigmoid", "QLinearLeakyRelu"):
        compared([node(name, "a as az ys yz")], one, ["y"], held, level=1)
    compared([node("QLinearSoftmax", "a as az ys yz", axis=1, opset=13)], one, ["y"], held, level=1)
    blocks = [node("QuantizeLinear", "x ys yz", "q"), node("DequantizeLinear", "q ys yz", "y")]
    scale = {name: held[name] for name in ("ys", "yz")}
    compared(blocks, [{"x": real(n, 4)} for n in (1, 3)], ["y"], scale, atol=0.06)


def test_what_is_refused_says_so():
    """Unsupported attributes and layouts are refused, and the error names them."""
    made = node("FusedConv", "x w", activation="Gelu")
    model = kinnor.onnx.load(model_of([made], {"x": real(1, 2, 4, 4)}, ["y"], {"w": real(1, 2, 1, 1)}))
    with pytest.raises(nn.UnsupportedError, match="expected an activation of"):
        model(real(1, 2, 4, 4))
    made = node("MultiHeadAttention", "x", num_heads=2)
    model = kinnor.onnx.load(model_of([made], {"x": real(1, 2, 2, 3, 4)}, ["y"]))
    with pytest.raises(nn.UnsupportedError, match="got packed ones"):
        model(real(1, 2, 2, 3, 4))


LSTM = [
    {},
    {"dtype": np.uint8},
    {"direction": "bidirectional"},
    {"direction": "reverse", "states": True},
    {"peepholes": True, "has_bias": False},
    {"per_column": True},
    {"lengths": True, "direction": "bidirectional", "states": True},
]
"""Arguments of `lstm_of_levels`."""


def lstm_of_levels(dtype=np.int8, direction="forward", states=False, peepholes=False, per_column=False, **rest):
    """Returns a `DynamicQuantizeLSTM`, its constants and a function that makes feeds."""
    n, size = (2 if direction == "bidirectional" else 1), 6
    shape = (n, 4 * size) if per_column else (n,)
    held = {"w": levels(dtype, n, 5, 4 * size), "r": levels(dtype, n, size, 4 * size)}
    held |= {name: (RNG.random(shape) * 0.01 + 0.005).astype(np.float32) for name in ("ws", "rs")}
    held |= {name: np.full(shape, 0 if dtype == np.int8 else 128, dtype) for name in ("wz", "rz")}
    held |= {"b": real(n, 8 * size)} if rest.get("has_bias", True) else {}
    held |= {"p": real(n, 3 * size)} if peepholes else {}
    names = ["x w r", "b" if "b" in held else "-", "lengths" if rest.get("lengths") else "-"]
    names += ["h c" if states else "- -", "p" if peepholes else "-", "ws wz rs rz"]
    made = node("DynamicQuantizeLSTM", " ".join(names), "y yh yc", hidden_size=size, direction=direction)

    def feed(length, batch):
        """Returns inputs of the network: sequences, and lengths and initial states if it takes them."""
        found = {"x": real(length, batch, 5)}
        if rest.get("lengths"):
            found["lengths"] = np.array([length, max(length - 2, 1), 1][:batch], np.int32)
        return {**found, **({name: real(n, batch, size) / 2 for name in "hc"} if states else {})}

    return made, held, feed


@pytest.mark.parametrize("settings", LSTM)
def test_lstm_of_levels(settings):
    """`DynamicQuantizeLSTM` agrees for several settings and lengths."""
    made, held, feed = lstm_of_levels(**settings)
    compared([made], [feed(7, 1), feed(4, 3)], ["y", "yh", "yc"], held)


def test_lstm_of_levels_has_no_gradient():
    """Backward of `DynamicQuantizeLSTM` raises UnsupportedError."""
    made, held, feed = lstm_of_levels()
    model = kinnor.onnx.load(model_of([made], feed(3, 1), ["y"], held))
    x = nn.Variable.from_numpy_array(feed(3, 1)["x"], need_grad=True)
    y = model(x)
    y.forward()
    np.testing.assert_allclose(y.d, model(x.d), rtol=1e-5, atol=1e-6)
    with pytest.raises(nn.UnsupportedError, match="DynamicQuantizeLSTM: expected no gradient"):
        y.backward()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [False, True])
def test_sequences_of_several_lengths(kind, direction, states):
    """Recurrent operators agree for batches of sequences of different lengths."""
    n, gates = (2 if direction == "bidirectional" else 1), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    held = {"w": real(n, gates * 4, 5), "r": real(n, gates * 4, 4), "b": real(n, gates * 8)}
    outputs = ["y", "yh", *(["yc"] if kind == "LSTM" else [])]
    names = "x w r b lengths" + ((" h c" if kind == "LSTM" else " h") if states else "")
    made = node(kind, names, " ".join(outputs), domain="", hidden_size=4, direction=direction)

    def feed(length, lengths):
        """Returns sequences of these lengths, and initial states if the network takes them."""
        found = {"x": real(length, len(lengths), 5), "lengths": np.array(lengths, np.int32)}
        return {**found, **({name: real(n, len(lengths), 4) for name in names.split()[5:]} if states else {})}

    compared([made], [feed(6, [6, 2, 4]), feed(3, [3, 3]), feed(6, [1, 6, 1])], outputs, held)


MASKS = [None, "rows", "keys", "queries"]
"""Kinds of masks."""


def mask(kind, batch, n_queries, n_keys):
    """Returns a feed with an attention mask of this kind; empty if `kind` is None."""
    if kind is None:
        return {}
    if kind == "rows":
        return {"m": RNG.integers(1, n_keys + 1, batch).astype(np.int32)}
    shape = (batch, n_keys) if kind == "keys" else (batch, n_queries, n_keys)
    found = RNG.integers(0, 2, shape).astype(np.int32)
    found[..., 0] = 1
    return {"m": found}


@pytest.mark.parametrize(
    ("kind", "has_past"), [*((kind, False) for kind in MASKS), *((kind, True) for kind in MASKS[::2])]
)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(kind, has_past, causal):
    """`Attention` agrees with ONNX Runtime, for each mask, with and without cached keys and a causal mask."""
    names = f"x w b {'m' if kind else '-'} {'past' if has_past else '-'}"
    made = node("Attention", names, "y present", num_heads=2, unidirectional=causal)

    def feed(batch, time, past):
        """Returns inputs of the attention: sequences, mask, and `past` cached rows if it takes them."""
        found = {"x": real(batch, time, 6), **mask(kind, batch, time, time + past)}
        return {**found, **({"past": real(2, batch, 2, past, 4)} if has_past else {})}

    feeds = [feed(2, 3, 2 * has_past), feed(1, 5, 4 * has_past)]
    compared([made], feeds, ["y", "present"], {"w": real(6, 24), "b": real(24)}, atol=1e-4)


@pytest.mark.parametrize("kind", [None, "keys"])
def test_attention_of_levels(kind):
    """`QAttention` agrees, with and without a mask."""
    made = node("QAttention", f"x w b xs ws {'m' if kind else '-'} xz wz", num_heads=2)
    held = {"w": levels(np.int8, 6, 24), "b": real(24), "xs": np.float32(0.02), "ws": np.float32(0.01)}
    held |= {"xz": np.uint8(120), "wz": np.int8(0)}
    feeds = [{"x": levels(np.uint8, n, t, 6), **mask(kind, n, t, t)} for n, t in ((2, 3), (1, 4))]
    compared([made], feeds, ["y"], held, atol=1e-4)


# ONNX Runtime takes lengths and a bias in one of the layouts only.
HEADS = [*(("three", kind, bias) for kind in MASKS[:3] for bias in (False, True))]
HEADS += [(layout, kind, False) for layout in ("cross", "cached") for kind in (None, "keys")]


@pytest.mark.parametrize(("layout", "kind", "has_bias"), HEADS)
def test_multi_head_attention(layout, kind, has_bias):
    """`MultiHeadAttention` agrees for its layouts of keys and values, and its kinds of masks."""

    def feed(batch, time, n_keys):
        """Returns inputs of the attention: queries, keys and values in its layout, mask, and cached keys."""
        found = {"q": real(batch, time, 8)}
        past = 3 if layout == "cached" else 0
        if layout == "cross":
            found |= {name: real(batch, 2, n_keys, 4) for name in "kv"}
        else:
            found |= {name: real(batch, n_keys if not past else time, 8) for name in "kv"}
        found |= mask(kind, batch, time, (time if past else n_keys) + past)
        found |= {name: real(batch, 2, past, 4) for name in ("pk", "pv")} if past else {}
        return found

    rest = f" {'b' if has_bias else '-'} {'m' if kind else '-'} -" + (" pk pv" if layout == "cached" else "")
    outputs = ["y", "nk", "nv"] if layout == "cached" else ["y"]
    made = node("MultiHeadAttention", "q k v" + rest, " ".join(outputs), num_heads=2)
    compared([made], [feed(2, 3, 5), feed(1, 4, 2)], outputs, {"b": real(24)} if has_bias else {}, atol=1e-4)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("is_offset", [False, True])
@pytest.mark.parametrize("is_flat", [False, True])
def test_rotary_positions(interleaved, is_offset, is_flat):
    """`RotaryEmbedding` agrees for its layouts, and for positions of rows or an offset."""
    held = {"cos": real(20, 4), "sin": real(20, 4)}

    def feed(batch, time):
        """Returns sequences in the layout of the node, and the positions of their rows."""
        x = real(batch, time, 16) if is_flat else real(batch, 2, time, 8)
        return {"x": x, "p": np.array([3]) if is_offset else RNG.integers(0, 20, (batch, time))}

    made = node("RotaryEmbedding", "x p cos sin", interleaved=interleaved)
    compared([made], [feed(2, 3), feed(1, 5)], ["y"], held)


@pytest.mark.parametrize("settings", [{}, {"rotary": True}, {"window": 3}, {"softcap": 2.0}, {"packed": True}])
@pytest.mark.parametrize("stage", ["prompt", "step", "several rows"])
def test_grouped_queries(settings, stage):
    """`GroupQueryAttention` agrees for the first call and for calls with cached keys."""
    heads, groups, width = 4, 2, 16
    attributes = {"num_heads": heads, "kv_num_heads": groups}
    attributes |= {"do_rotary": 1} if settings.get("rotary") else {}
    attributes |= {"local_window_size": settings["window"]} if "window" in settings else {}
    attributes |= {"softcap": settings["softcap"]} if "softcap" in settings else {}
    is_packed = settings.get("packed", False)
    names = f"{'x - -' if is_packed else 'q k v'} pk pv ends total"
    names += " cos sin" if settings.get("rotary") else ""
    held = {"cos": real(30, width // 2), "sin": real(30, width // 2)} if settings.get("rotary") else {}

    def feed(batch, time, past, total):
        """Returns inputs of the attention: `past` rows are cached, and `total` rows are valid with the new ones."""
        if is_packed:
            found = {"x": real(batch, time, (heads + 2 * groups) * width)}
        else:
            found = {"q": real(batch, time, heads * width)}
            found |= {name: real(batch, time, groups * width) for name in "kv"}
        ends = np.full(batch, total - 1, np.int32)
        if stage == "several rows":
            ends[1:] -= 2
        found |= {name: real(batch, groups, past, width) for name in ("pk", "pv")}
        return {**found, "ends": ends, "total": np.array(total, np.int32)}

    if stage == "prompt":
        feeds = [feed(2, 5, 0, 5), feed(1, 3, 0, 3)]
    elif stage == "step":
        feeds = [feed(1, 1, 4, 5), feed(2, 1, 6, 7)]
    else:
        feeds = [feed(2, 1, 6, 7), feed(3, 1, 8, 9)]
    made = node("GroupQueryAttention", names, "y nk nv", **attributes)
    if stage == "several rows":  # ONNX Runtime leaves what is after the end of a sequence as it is
        compared([made], feeds, ["y"], held, atol=1e-4)
    else:
        compared([made], feeds, ["y", "nk", "nv"], held, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zero", [False, True])
def test_products_of_few_bits(bits, has_zero):
    """`MatMulNBits`, with weights of few bits, agrees with ONNX Runtime."""
    n_in, n_out, block = 40, 6, 16
    n_blocks = -(-n_in // block)
    held = {"w": levels(np.uint8, n_out, n_blocks, block * bits // 8), "s": real(n_out * n_blocks) ** 2}
    names = "x w s"
    if has_zero:
        held["z"] = levels(np.uint8, n_out * -(-n_blocks * bits // 8))
        names += " z"
    made = node("MatMulNBits", names, K=n_in, N=n_out, bits=bits, block_size=block)
    compared([made], [{"x": real(n, 3, n_in)} for n in (1, 2)], ["y"], held, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("name", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_normalization_of_sums(name):
    """Normalizations of the sum of two inputs agree with ONNX Runtime."""
    names = "x s g b c" if name == "SkipLayerNormalization" else "x s g c"
    made = node(name, names, epsilon=1e-5)
    feeds = [{"x": real(n, 3, 8), "s": real(n, 3, 8)} for n in (1, 2)]
    compared([made], feeds, ["y"], {key: real(8) for key in names.split()[2:]})


@pytest.mark.parametrize("has_kinds", [True, False])
@pytest.mark.parametrize("has_mask", [True, False])
def test_embeddings_of_levels(has_kinds, has_mask):
    """`QEmbedLayerNormalization` agrees with ONNX Runtime, with and without kinds of words and a mask."""
    parts = ["words", "places", "kinds", "g", "b"]
    shapes = [(9, 8), (6, 8), (3, 8), (8,), (8,)]
    constants = {name: levels(np.uint8, *shape) for name, shape in zip(parts, shapes, strict=True)}
    for name in parts:
        constants[f"{name}_scale"] = np.float32(RNG.uniform(0.01, 0.05))
        constants[f"{name}_zero"] = np.uint8(RNG.integers(100, 150))
    absent = {"kinds", "kinds_scale", "kinds_zero"} if not has_kinds else set()
    names = ["ids", "kind" if has_kinds else "-", *parts, "mask" if has_mask else "-"]
    names += [f"{name}_scale" for name in parts] + [f"{name}_zero" for name in parts]
    made = node(
        "QEmbedLayerNormalization",
        " ".join("-" if name in absent else name for name in names),
        "y counted",
        epsilon=1e-6,
    )
    feeds = []
    for n, length in ((2, 4), (1, 6), (2, 4)):
        feed = {"ids": RNG.integers(0, 9, (n, length)).astype(np.int32)}
        if has_kinds:
            feed["kind"] = RNG.integers(0, 3, (n, length)).astype(np.int32)
        if has_mask:
            feed["mask"] = (np.arange(length) < RNG.integers(1, length, (n, 1))).astype(np.int32)
        feeds.append(feed)
    held = {name: x for name, x in constants.items() if name not in absent}
    compared([made], feeds, ["y", "counted"], held, rtol=1e-3, atol=1e-4)
