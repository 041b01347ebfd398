"""Random networks, which give the same bits in every way to run them. A seed determines the network.

`programs.py` applies every kind of step to a small graph. Here the graph is a network of layers: convolutions,
recurrent layers, attention, dropout, `F.forget` segments, embeddings and users' functions. It runs in each
floating-point type and with arrays of any shape.

`python tests/fuzz/random_networks.py SEED` prints the layers of a seed, and runs the network.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTEXTS = ("float", "float", "double", "half", "bfloat16")
"""Element types of contexts to choose from. Float32 is twice as likely."""
ROWS = 40_000
"""Rows of the table that integers choose from: more than half precision and bfloat16 count."""


class Scaled(F.PythonFunction):
    """A user's function that doubles its input, with a right declaration of what its gradient reads."""

    def min_outputs(self) -> int:
        """Declares one output."""
        return 1

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """Declares that no gradient reads the output."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """Declares that no gradient reads an input."""
        return False

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """Gives the output the shape of the input."""
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Computes the output."""
        outputs[0].d = inputs[0].d * 2

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        if propagate_down[0]:
            g = outputs[0].g * 2
            inputs[0].g = inputs[0].g + g if accum[0] else g

    def grad_impl(self, graph_inputs: Any, inputs: Any, outputs: Any) -> None:
        """Has no graph rule."""
        raise NotImplementedError


class Lying(Scaled):
    """A user's function with a wrong declaration: its gradient reads the input, but is declared not to."""

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        if propagate_down[0]:
            g = outputs[0].g * (2 + 0 * inputs[0].d)
            inputs[0].g = inputs[0].g + g if accum[0] else g


@dataclass
class Network:
    """A network as a list of layers, which are functions of a variable, parameters and statistics.

    Attributes:
        context: The element type of the context.
        x: The values of its input.
        layers: Pairs of a layer's name and the function that builds it.
        parameters: The values of its parameters.
        statistics: The values of running means and variances.
        is_random: True if a layer draws random numbers.
        lies: True if a user's function has a wrong declaration.
        is_saved: True if network files can store all layers.
        late: True if the input needs a gradient only after the graph is built.
    """

    context: str
    x: np.ndarray
    layers: list[tuple[str, Callable[[Any, list[Any], list[Any]], Any]]] = field(default_factory=list)
    parameters: list[np.ndarray] = field(default_factory=list)
    statistics: list[np.ndarray] = field(default_factory=list)
    is_random: bool = False
    lies: bool = False
    is_saved: bool = True
    late: bool = False

    def parameter(self, *shape: int, scale: float = 0.5) -> int:
        """Adds a parameter and returns its index."""
        draw = np.random.RandomState(len(self.parameters) + 7 * len(self.layers))
        self.parameters.append((draw.uniform(-1, 1, shape) * scale).astype(np.float32))
        return len(self.parameters) - 1

    def add(self, name: str, build: Callable[[Any, list[Any], list[Any]], Any]) -> None:
        """Appends a layer. `build` takes the variable, the parameters and the statistics."""
        self.layers.append((name, build))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "tanh": F.tanh,
    "sigmoid": F.sigmoid,
    "elu": F.elu,
    "gelu": F.gelu,
    "swish": F.swish,
    "softplus": F.softplus,
    "leaky_relu": F.leaky_relu,
    "scaled": lambda x: x * 0.5 + 0.25,
    "softmax": lambda x: F.softmax(x, axis=1),
    "log_softmax": lambda x: F.log_softmax(x, axis=1),
    "abs": F.abs,
    "clipped": lambda x: F.clip_by_value(x, -0.5, 0.75),
}
MOVES: dict[str, Callable[[Any], Any]] = {
    "cut": lambda i: i[:, 1:],
    "flip": lambda i: F.flip(i, axes=(1,)),
    "join": lambda i: F.concatenate(i, i[:, :1], axis=1),
    "turn": lambda i: F.transpose(F.transpose(i, (1, 0)), (1, 0)),
    "stack": lambda i: F.reshape(F.stack(i, i, axis=1), (i.shape[0], 2 * i.shape[1])),
    "pad": lambda i: F.pad(i, (0, 0, 1, 0), constant_value=3),
    "pick": lambda i: F.gather(i, nn.Variable.from_numpy_array(np.array([0, i.shape[1] - 1])), axis=1),
    "same": F.identity,
}
"""Functions that move integer ids of shape (n, time). They must keep them exact in each context."""
PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cut": lambda i: i[:, 1:],
    "flip": lambda i: i[:, ::-1],
    "join": lambda i: np.concatenate([i, i[:, :1]], 1),
    "turn": lambda i: i,
    "stack": lambda i: np.concatenate([i, i], 1),
    "pad": lambda i: np.pad(i, ((0, 0), (1, 0)), constant_values=3),
    "pick": lambda i: i[:, [0, -1]],
    "same": lambda i: i,
}
"""The moves of integers in NumPy."""


def made(seed: int) -> Network:
    """Returns the network of a seed."""
    choose = random.Random(seed)
    kind = choose.choice(["vector", "image", "ids", "vector", "image"])
    n = choose.choice([1, 2, 3, 5])
    draw = np.random.RandomState(seed)
    shape = {
        "vector": (n, choose.choice([1, 2, 3, 7, 17])),
        "image": (n, choose.choice([1, 2, 3, 4, 8]), choose.choice([3, 4, 5, 9]), choose.choice([3, 4, 7])),
        "ids": (n, choose.choice([2, 3, 5])),
    }[kind]
    x = draw.randint(0, ROWS, shape) if kind == "ids" else draw.uniform(-1, 1, shape).astype(np.float32)
    net = Network(choose.choice(CONTEXTS), x)
    if kind == "ids":
        shape = _embedding(net, shape, choose)
    for _ in range(choose.randint(1, 6)):
        kinds = {2: VECTOR, 3: SEQUENCE, 4: IMAGE}[len(shape)]
        name = choose.choice(sorted(kinds))
        shape = kinds[name](net, shape, choose)
    net.late = kind != "ids" and choose.random() < 0.3
    return net


def _embedding(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds integer moves and an embedding that looks the moved indices up."""
    ids = net.x
    for _ in range(choose.randint(0, 3)):
        name = choose.choice(sorted(MOVES))
        if name == "cut" and ids.shape[1] < 2:
            continue
        ids = PLAIN[name](ids)
        net.add(name, lambda x, w, s, f=MOVES[name]: f(x))
    width = choose.choice([1, 2, 4])
    table = net.parameter(ROWS, width)
    net.add("embed", lambda x, w, s: F.embed(x, w[table]))
    net.is_saved = False
    return (*ids.shape, width)


def _activation(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a random activation."""
    name = choose.choice(sorted(ACTIVATIONS))
    net.add(name, lambda x, w, s, f=ACTIVATIONS[name]: f(x))
    return shape


def _residual(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds `x + f(x)` with a random activation `f`."""
    f = ACTIVATIONS[choose.choice(sorted(ACTIVATIONS))]
    net.add("residual", lambda x, w, s: x + f(x))
    return shape


def _dropout(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds dropout with a fixed seed."""
    seed = choose.randint(1, 1000)
    net.add("dropout", lambda x, w, s: F.dropout(x, 0.4, seed=seed))
    net.is_random = True
    return shape


def _forget_segments(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds one to three nested `F.forget` segments, which leave an input unused."""
    f, g = (ACTIVATIONS[choose.choice(sorted(ACTIVATIONS))] for _ in range(2))
    depth = choose.randint(1, 3)

    def segment(x: Any, unused: Any, left: int) -> Any:
        """Returns the output of a segment with `left` segments in it."""
        y = g(f(x))
        return F.forget(lambda a, b: segment(a, b, left - 1), y, unused) if left > 1 else y

    net.add(f"forget {depth}", lambda x, w, s: F.forget(lambda a, b: segment(a, b, depth), x, x * 2.0))
    net.is_saved = False
    return shape


def _user_function(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a user's function, sometimes one with a wrong declaration."""
    lies = choose.random() < 0.2
    function = Lying if lies else Scaled
    net.add(function.__name__, lambda x, w, s: function()(x))
    net.lies |= lies
    net.is_saved = False
    return shape


def _assigned_in_place(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds an assignment to a slice in place."""
    f = ACTIVATIONS[choose.choice(sorted(ACTIVATIONS))]

    def build(x: Any, w: Any, s: Any) -> Any:
        """Applies the activation and assigns to its first rows."""
        y = f(x)
        y[0:1] = 0.5
        return y * 1.0

    net.add("written", build)
    net.is_saved = False
    return shape


def _reshaped(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a reshape to one axis and back, often in place."""
    f = ACTIVATIONS[choose.choice(["relu", "tanh", "sigmoid", "elu"])]
    inplace = choose.random() < 0.7
    net.add("reshaped", lambda x, w, s: F.reshape(F.reshape(f(x), (-1,), inplace=inplace), shape, inplace=inplace))
    return shape


def _layer_normalization(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a layer normalization."""
    beta, gamma = (net.parameter(1, *shape[1:]) for _ in range(2))
    net.add("layer_normalization", lambda x, w, s: F.layer_normalization(x, w[beta], w[gamma], batch_axis=0, eps=0.1))
    return shape


def _batch_normalization(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a batch normalization, by batch or running statistics."""
    own = (1, shape[1], *(1,) * (len(shape) - 2))
    beta, gamma, uses = net.parameter(*own), net.parameter(*own), choose.random() < 0.7
    mean, variance = len(net.statistics), len(net.statistics) + 1
    net.statistics += [np.full(own, 0.1, np.float32), np.full(own, 0.7, np.float32)]
    net.add(
        "batch_normalization",
        lambda x, w, s: F.batch_normalization(x, w[beta], w[gamma], s[mean], s[variance], batch_stat=uses, eps=0.1),
    )
    return shape


def _affine(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds an affine layer over the last axis."""
    width, axis = choose.choice([1, 3, 8, 33]), len(shape) - 1
    w, b = net.parameter(shape[-1], width), net.parameter(width)
    has_bias = choose.random() < 0.7
    net.add("affine", lambda x, p, s: F.affine(x, p[w], p[b] if has_bias else None, base_axis=axis))
    return (*shape[:-1], width)


def _concatenated_slices(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a concatenation of overlapping slices and a square."""
    net.add("parts", lambda x, w, s: F.concatenate(F.tanh(x[:, :1]), x * x, x[:, -1:], axis=1))
    return (shape[0], shape[1] + 2, *shape[2:])


def _vectors_to_images(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a reshape of vectors to images of one channel and one column."""
    net.add("image", lambda x, w, s: F.reshape(x, (shape[0], 1, shape[1], 1)))
    return (shape[0], 1, shape[1], 1)


def _convolution(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a convolution with random groups, kernel, stride and dilation."""
    group = choose.choice([g for g in (1, 1, 2) if shape[1] % g == 0])
    maps = group * choose.choice([1, 2, 5])
    kernel = tuple(choose.choice([k for k in (1, 2, 3) if k <= n + 1]) for n in shape[2:])
    stride, dilation = (tuple(choose.choice([1, 1, 2]) for _ in kernel) for _ in range(2))
    pad = tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
    w, b = net.parameter(maps, shape[1] // group, *kernel), net.parameter(maps)
    net.add(
        "convolution",
        lambda x, p, s: F.convolution(x, p[w], p[b], pad=pad, stride=stride, dilation=dilation, group=group),
    )
    spatial = (
        (n + 2 * q - d * (k - 1) - 1) // t + 1
        for n, q, d, k, t in zip(shape[2:], pad, dilation, kernel, stride, strict=True)
    )
    return (shape[0], maps, *spatial)


def _deconvolution(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a transposed convolution."""
    maps, stride = choose.choice([1, 3]), choose.choice([1, 2])
    w = net.parameter(shape[1], maps, 2, 2)
    net.add("deconvolution", lambda x, p, s: F.deconvolution(x, p[w], stride=(stride, stride)))
    return (shape[0], maps, *((n - 1) * stride + 2 for n in shape[2:]))


def _depthwise(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a depthwise convolution."""
    w = net.parameter(shape[1], 3, 3)
    net.add("depthwise", lambda x, p, s: F.depthwise_convolution(x, p[w], pad=(1, 1)))
    return shape


def _pooling(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a random kind of pooling with stride 1."""
    f = choose.choice([F.max_pooling, F.average_pooling, F.sum_pooling])
    kernel = tuple(min(n, 2) for n in shape[2:])
    net.add("pooling", lambda x, w, s: f(x, kernel, stride=(1, 1)))
    return (*shape[:2], *(n - k + 1 for n, k in zip(shape[2:], kernel, strict=True)))


def _flat(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a reshape of images to vectors."""
    net.add("flat", lambda x, w, s: F.reshape(x, (shape[0], -1)))
    return (shape[0], int(np.prod(shape[1:])))


def _images_to_sequences(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a reshape of images to sequences of channel vectors."""
    net.add("columns", lambda x, w, s: F.transpose(F.reshape(x, (*shape[:2], -1)), (0, 2, 1)))
    return (shape[0], int(np.prod(shape[2:])), shape[1])


def _attention(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds self-attention by `scaled_dot_product_attention`."""
    causal, drop = choose.random() < 0.5, choose.choice([0.0, 0.0, 0.3])
    seed = choose.randint(1, 100)

    def build(x: Any, w: Any, s: Any) -> Any:
        """Applies self-attention."""
        y = F.scaled_dot_product_attention(x, F.tanh(x), x, causal=causal, dropout=drop, seed=seed)
        return y[0] if isinstance(y, tuple) else y

    net.add("attention", build)
    net.is_random |= drop > 0
    net.is_saved = False
    return shape


def _multi_head(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds `multi_head_attention`."""
    width = shape[-1]
    heads = choose.choice([k for k in (1, 2) if width % k == 0])
    p = [net.parameter(width, width) for _ in range(4)] + [net.parameter(width) for _ in range(4)]

    def build(x: Any, w: Any, s: Any) -> Any:
        """Applies multi-head attention."""
        h = F.transpose(x, (1, 0, 2))
        return F.transpose(F.multi_head_attention(h, h, h, heads, *(w[i] for i in p))[0], (1, 0, 2))

    net.add("multi_head_attention", build)
    net.is_saved = False
    return shape


def _recurrent(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds an LSTM, GRU or RNN."""
    n, _, width = shape
    hidden, kind = choose.choice([1, 3]), choose.choice(["lstm", "gru", "rnn"])
    gates = {"lstm": 4, "gru": 3}.get(kind)
    w = net.parameter(1, gates, hidden, width + hidden) if gates else net.parameter(1, hidden, width + hidden)
    rows = {"lstm": 4, "gru": 4}.get(kind)
    b = net.parameter(1, 1, rows, hidden) if rows else net.parameter(1, 1, hidden)
    states = [net.parameter(1, 1, n, hidden) for _ in range(2 if kind == "lstm" else 1)]

    def build(x: Any, p: Any, s: Any) -> Any:
        """Applies the recurrent layer."""
        y = getattr(F, kind)(F.transpose(x, (1, 0, 2)), *(p[i] for i in states), p[w], None, p[b])
        return F.transpose(y[0], (1, 0, 2))

    net.add(kind, build)
    net.is_saved = False
    return (shape[0], shape[1], hidden)


def _mean_over_sequence(net: Network, shape: tuple[int, ...], choose: random.Random) -> tuple[int, ...]:
    """Adds a mean over the sequence axis."""
    net.add("mean", lambda x, w, s: F.mean(x, axis=1))
    return (shape[0], shape[2])


Layer = "Callable[[Network, tuple[int, ...], random.Random], tuple[int, ...]]"
COMMON = {
    "activation": _activation,
    "dropout": _dropout,
    "forget": _forget_segments,
    "normalization": _layer_normalization,
    "parts": _concatenated_slices,
    "reshaped": _reshaped,
    "residual": _residual,
    "user": _user_function,
    "written": _assigned_in_place,
}
"""Layers for inputs of any rank. Each adds itself to the network and returns the shape of its output."""
VECTOR = COMMON | {"affine": _affine, "batch": _batch_normalization, "image": _vectors_to_images}
"""Layers for inputs of shape (n, features)."""
IMAGE = COMMON | {
    "batch": _batch_normalization,
    "columns": _images_to_sequences,
    "convolution": _convolution,
    "convolution again": _convolution,
    "deconvolution": _deconvolution,
    "depthwise": _depthwise,
    "flat": _flat,
    "pooling": _pooling,
}
"""Layers for inputs of shape (n, channels, height, width)."""
SEQUENCE = COMMON | {
    "affine": _affine,
    "attention": _attention,
    "last": _mean_over_sequence,
    "multi head": _multi_head,
    "recurrent": _recurrent,
}
"""Layers for inputs of shape (n, time, features)."""


@dataclass
class Way:
    """A way to run a network.

    Attributes:
        eager: Whether functions run as they are built.
        plan: The value of `nn.config.plan` for a static graph.
        forward: Arguments of the forward run.
        backward: Arguments of the backward run.
        by: The way to differentiate: `backward`, `autodiff` or `grad`.
        threads: Number of threads.
        recompute: Whether values are dropped and recomputed.
        budget: Bytes of a memory budget for eager code.
        exact: Whether the result must have the same bits as the other exact ways.
    """

    eager: bool = False
    plan: str = "optimised"
    forward: dict[str, bool] = field(default_factory=dict)
    backward: dict[str, bool] = field(default_factory=dict)
    by: str = "backward"
    threads: int = 1
    recompute: bool = False
    budget: int | None = None
    exact: bool = True


WAYS = {
    "plain": Way(plan="plain"),
    "static": Way(),
    "cleared": Way(forward={"clear_no_need_grad": True}, backward={"clear_buffer": True}),
    "two threads": Way(threads=2),
    "three threads, cleared": Way(threads=3, forward={"clear_no_need_grad": True}, backward={"clear_buffer": True}),
    "eager": Way(eager=True),
    "eager within a budget": Way(eager=True, budget=1 << 16),
    "recompute": Way(recompute=True, backward={"clear_buffer": True}),
    "autodiff": Way(by="autodiff"),
    "autodiff of eager code": Way(eager=True, by="autodiff"),
    "gradient graph": Way(by="grad", exact=False),
}
"""Ways to run a network. Each must give the results of `plain`."""


@contextmanager
def _settings_of(net: Network, way: Way) -> Iterator[None]:
    """Sets threads, plan, context, modes and memory budget of a way to run within a `with` block."""
    with ExitStack() as stack:
        threads, plan = nn.get_num_threads(), nn.config.plan
        stack.callback(nn.set_num_threads, threads)
        stack.callback(setattr, nn.config, "plan", plan)
        nn.set_num_threads(way.threads)
        nn.config.plan = way.plan
        stack.enter_context(nn.context_scope(nn.Context([f"cpu:{net.context}"])))
        stack.enter_context(nn.auto_forward(way.eager))
        if way.budget is not None:
            stack.enter_context(nn.memory_budget(way.budget + (64 << 20)))
        if way.recompute:
            stack.enter_context(nn.recompute(True))
        yield


def result(net: Network, way: Way) -> dict[str, np.ndarray]:
    """Returns loss, gradients and statistics of a network after one step."""
    with _settings_of(net, way):
        x = nn.Variable.from_numpy_array(net.x, need_grad=net.x.dtype.kind == "f" and not net.late)
        w = [nn.Variable.from_numpy_array(p, need_grad=True) for p in net.parameters]
        s = [nn.Variable.from_numpy_array(p) for p in net.statistics]
        if net.late and way.eager:
            x.need_grad = True
        h = x
        for _, build in net.layers:
            h = build(h, w, s)
        factors = np.random.RandomState(0).uniform(0.5, 1.5, h.shape).astype(np.float32)
        loss = F.sum(h * nn.Variable.from_numpy_array(factors))
        if net.late:
            x.need_grad = True
        ends = [v for v in (x, *w) if v.need_grad]
        for v in ends:
            v.grad.zero()
        if way.by == "grad":
            found = nn.grad([loss], ends)
            nn.forward_all([loss, *found])
            return {"loss": np.array(loss.d), **{f"gradient {i}": np.array(g.d) for i, g in enumerate(found)}}
        if not way.eager:
            loss.forward(**way.forward)
        value = np.array(loss.d)
        if way.by == "autodiff":
            nn.autodiff.backward([loss])
        else:
            loss.backward(**way.backward)
        found = {f"gradient {i}": np.array(v.g, np.float64) for i, v in enumerate(ends)}
        return {"loss": value, **found, **{f"statistic {i}": np.array(v.d) for i, v in enumerate(s)}}


TOLERANCE = {"double": 1e-9, "float": 1e-3, "half": 0.1, "bfloat16": 0.5}
"""Relative tolerance for ways that are not exact, by element type."""


def check(seed: int) -> None:
    """Runs a network in every way.

    Raises:
        AssertionError: If two ways give different numbers.
    """
    net = made(seed)
    names = [name for name, _ in net.layers]
    expected = result(net, WAYS["plain"])
    # A gradient that is zero but for rounding, as of a bias before a normalization, is as exact as its terms.
    found = [np.abs(value).max(initial=0.0) for key, value in expected.items() if key.startswith("gradient")]
    largest = max(found, default=0.0)
    for name, way in WAYS.items():
        if way.by == "grad" and {"Scaled", "Lying"} & set(names):
            continue  # they have no rule for graphs of gradients
        try:
            found = result(net, way)
        except nn.Error as error:
            if net.lies and isinstance(error, (nn.ClearedError, nn.GraphError)):
                continue
            raise AssertionError(f"network {seed}, {net.context} {names}, {name}: {error}") from error
        for key, wanted in expected.items():
            if key not in found:
                continue
            if way.exact:
                same = np.array_equal(found[key], wanted, equal_nan=True)
            else:
                most = np.abs(wanted).max(initial=max(1.0, 0.01 * largest if key.startswith("gradient") else 0.0))
                # Equal infinities, which half precision reaches, do not differ.
                apart = np.subtract(found[key], wanted, out=np.zeros(wanted.shape), where=found[key] != wanted)
                same = np.abs(apart).max(initial=0.0) <= TOLERANCE[net.context] * most
                same = same or _is_rounding(net, key, found[key], wanted)
            assert same, f"network {seed}, {net.context} {names}, {name}: other numbers in {key}"
    _check_rows(net, seed)
    if net.is_saved and not net.is_random and net.context == "float":
        _check_file(net, seed)


def _is_rounding(net: Network, key: str, value: np.ndarray, plain: np.ndarray) -> bool:
    """True if a result in 16 bits has at most four times the error of a plain run, measured from double precision.

    In 16 bits a gradient whose terms cancel may consist of rounding errors alone.
    """
    if net.context not in ("half", "bfloat16"):
        return False
    exact = result(replace(net, context="double"), WAYS["plain"])[key]
    return bool(np.abs(value - exact).max(initial=0.0) <= 4 * np.abs(plain - exact).max(initial=0.0))


def _check_rows(net: Network, seed: int) -> None:
    """Checks that an embedding of moved indices looks up the same rows as NumPy."""
    names = [name for name, _ in net.layers]
    if "embed" not in names:
        return
    at = names.index("embed")
    ids = net.x
    for name in names[:at]:
        ids = PLAIN[name](ids)
    with _settings_of(net, WAYS["static"]):
        h = nn.Variable.from_numpy_array(net.x)
        for _, build in net.layers[:at]:
            h = build(h, [], [])
        y = F.embed(h, nn.Variable.from_numpy_array(np.arange(ROWS, dtype=np.float32)[:, None] // 256 % 128))
        y.forward()
        assert np.array_equal(y.d[..., 0].astype(np.int64), ids // 256 % 128), f"network {seed}: other rows"


def _check_file(net: Network, seed: int) -> None:
    """Checks that a network which is saved, loaded and called by several threads returns the right result to each."""
    x = nn.Variable(net.x.shape)
    w = [nn.Variable.from_numpy_array(p, need_grad=True) for p in net.parameters]
    h = x
    for _, build in net.layers:
        h = build(h, w, [nn.Variable.from_numpy_array(p) for p in net.statistics])
    with tempfile.TemporaryDirectory() as folder:
        try:
            nn.save(f"{folder}/net.nnp", h, inputs=[x])
            model = nn.load(f"{folder}/net.nnp")
            inputs = [net.x * k for k in (1, 0.5, -1, 2)]
            expected = [np.array(model(each)) for each in inputs]
        except (nn.Error, TypeError, ValueError):
            return  # files do not know such a network
        failed: list[str] = []

        def call(k: int) -> None:
            """Calls the model five times in a thread and notes differing results and errors."""
            try:
                for _ in range(5):
                    if not np.array_equal(model(inputs[k]), expected[k], equal_nan=True):
                        failed.append(f"network {seed}: the result of another call")
            except Exception as error:
                failed.append(f"network {seed}: {error}")

        threads = [threading.Thread(target=call, args=(k,)) for k in range(len(inputs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed[0]


def main() -> None:
    """Prints and runs the networks of the seeds on the command line."""
    for seed in map(int, sys.argv[1:]):
        net = made(seed)
        print(seed, net.context, net.x.shape, [name for name, _ in net.layers], flush=True)
        check(seed)


if __name__ == "__main__":
    main()
