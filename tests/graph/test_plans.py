"""Optimized plans compared with plain ones: the same bits, errors, flags and cleared states in every step."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import chain, leaf_of

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = [(1,), (3,), (16,), (7, 5), (1025,), (2048,), (40, 60), (3, 11_000), (70_000,), (2, 3, 12, 20), (1, 24, 8, 8)]
"""Shapes of all arrays of a random graph."""
LAYERED = [(7, 5), (40, 60), (2, 3, 12, 20), (1, 24, 8, 8)]
"""Shapes of graphs that may contain layers: `F.affine` for two axes, convolutions and normalizations for four."""
UNARY = [F.tanh, F.relu, F.sigmoid, F.exp, F.sin, F.abs, F.floor, lambda x: x * 0.5, lambda x: 1.5 - x, F.gelu]
"""Functions of one array, all elementwise."""
BINARY = [F.add2, F.sub2, F.mul2, F.maximum2, F.equal]
"""Functions of two arrays of one shape, all elementwise."""


@contextmanager
def plan(how: str) -> Iterator[None]:
    """Sets `nn.config.plan` to `how` within a `with` block."""
    before = nn.config.plan
    nn.config.plan = how
    try:
        yield
    finally:
        nn.config.plan = before


class Random:
    """A random graph: its leaves, its variables in order of creation, and the variables that the program holds."""

    def __init__(self, seed: int) -> None:
        """Builds the random graph of a seed."""
        self.rng = np.random.default_rng(seed)
        shape = self.shape = SIZES[self.rng.integers(len(SIZES))]
        self.leaves = [
            nn.Variable.from_numpy_array(
                self.rng.normal(size=shape).astype(np.float32), need_grad=bool(self.rng.random() < 0.7)
            )
            for _ in range(self.rng.integers(1, 4))
        ]
        self.leaves[0].need_grad = True
        variables = list(self.leaves)
        self.made: list[nn.Variable] = []
        for _ in range(self.rng.integers(2, 25)):
            y = self.function(variables)
            self.flag(y)
            variables.append(y)
            self.made.append(y)
        # The sum of all outputs depends on the whole graph.
        total = variables[-1]
        for i in self.rng.permutation(len(variables) - 1)[:3]:
            total = total + variables[i]
        self.loss = F.sum(total * 0.01)
        self.held = [v for v in self.made if self.rng.random() < 0.5]
        self.functions: list[Any] = []
        self.loss.visit(self.functions.append)
        del self.made

    def function(self, variables: list[nn.Variable]) -> nn.Variable:
        """Applies a random function to recent variables."""

        def pick() -> nn.Variable:
            """Returns a random one of the last variables."""
            near = min(len(variables), 4)
            return variables[-self.rng.integers(1, near + 1)]

        if self.shape in LAYERED and self.rng.random() < 0.5:
            return self.layer(pick())
        kind = self.rng.random()
        if kind < 0.5:
            return UNARY[self.rng.integers(len(UNARY))](pick())
        if kind < 0.6:
            return self.with_repeated(pick())
        if kind < 0.85:
            return BINARY[self.rng.integers(len(BINARY))](pick(), pick())
        x = pick()
        if kind < 0.9:
            return x + F.mean(x, axis=-1, keepdims=True)
        if kind < 0.95:
            return F.reshape(F.transpose(x, tuple(reversed(range(x.ndim)))), x.shape)
        return F.dropout(x, 0.3, seed=5)

    def with_repeated(self, x: nn.Variable) -> nn.Variable:
        """Applies a function to `x` and a second array that broadcasts: a number, a row, channels or another shape."""
        axes = self.rng.integers(x.ndim + 1, size=2)
        start, end = int(axes.min()), int(axes.max())
        shape = [n if start <= i < end else 1 for i, n in enumerate(x.shape)]
        values = self.rng.normal(size=shape[int(self.rng.integers(start + 1)) :]).astype(np.float32)
        other = nn.Variable.from_numpy_array(values, need_grad=bool(self.rng.random() < 0.3))
        self.leaves.append(other)
        f = BINARY[self.rng.integers(len(BINARY))]
        return f(x, other) if self.rng.random() < 0.6 else f(other, x)

    def layer(self, x: nn.Variable) -> nn.Variable:
        """Returns a layer that other functions can be fused with, followed by some of them in most cases."""

        def weight(*shape: int) -> nn.Variable:
            """Adds a leaf with random values."""
            values = self.rng.normal(size=shape).astype(np.float32) * 0.3
            self.leaves.append(nn.Variable.from_numpy_array(values, need_grad=True))
            return self.leaves[-1]

        if x.ndim == 2:
            y = F.affine(x, weight(x.shape[1], x.shape[1]), weight(x.shape[1]))
        elif self.rng.random() < 0.1:
            y = F.deconvolution(x, weight(x.shape[1], x.shape[1], 3, 3), weight(x.shape[1]), pad=(1, 1))
        elif (dice := self.rng.random()) < 0.4:
            y = self.normalized(x, weight)
        elif dice < 0.5:
            y = F.depthwise_convolution(x, weight(x.shape[1], 3, 3), pad=(1, 1))
        else:
            taps, group = int(self.rng.choice([1, 3])), int(self.rng.choice([1, 3]))
            w = weight(x.shape[1], x.shape[1] // group, taps, taps)
            y = F.convolution(x, w, weight(x.shape[1]), pad=(taps // 2, taps // 2), group=group)
        if self.rng.random() < 0.3:
            y = self.by_running_statistics(y, weight)
        if self.rng.random() < 0.2:
            y = y + x
        if self.rng.random() < 0.5:
            y = F.relu(y)
        return UNARY[self.rng.integers(len(UNARY))](y) if self.rng.random() < 0.4 else y

    def by_running_statistics(self, x: nn.Variable, weight: Callable[..., nn.Variable]) -> nn.Variable:
        """Returns a batch normalization with running statistics."""
        axis = int(self.rng.choice([1, x.ndim - 1]))
        shape = [x.shape[i] if i == axis else 1 for i in range(x.ndim)]
        values = self.rng.normal(size=(2, *shape)).astype(np.float32)
        mean, variance = map(nn.Variable.from_numpy_array, (values[0], np.abs(values[1]) + 0.5))
        return F.batch_normalization(x, weight(*shape), weight(*shape), mean, variance, axes=[axis], batch_stat=False)

    def normalized(self, x: nn.Variable, weight: Callable[..., nn.Variable]) -> nn.Variable:
        """Returns a random kind of normalization."""
        channels = (1, x.shape[1], 1, 1)
        beta, gamma = weight(*channels), weight(*channels)
        kind = self.rng.integers(4)
        if kind == 0:
            return F.layer_normalization(x, weight(1, *x.shape[1:]), weight(1, *x.shape[1:]))
        if kind == 1:
            return F.group_normalization(x, beta, gamma, num_groups=3)
        mean, variance = (nn.Variable.from_numpy_array(np.ones(channels, np.float32)) for _ in range(2))
        return F.batch_normalization(x, beta, gamma, mean, variance, batch_stat=bool(kind == 2))

    def flag(self, y: nn.Variable) -> None:
        """Sets a random flag of a variable."""
        dice = self.rng.random()
        if dice < 0.08:
            y.persistent = True
        elif dice < 0.12:
            y.need_grad = False
        elif dice < 0.16:
            y.recompute = True

    def step(self) -> list[Any]:
        """Runs one step with random options. Returns everything that the caller can observe."""
        clear = {"clear_buffer": bool(self.rng.random() < 0.2), "clear_no_need_grad": bool(self.rng.random() < 0.7)}
        seen: list[Any] = [attempt(lambda: self.loss.forward(**clear))]
        seen += self.look()
        if self.rng.random() < 0.3:
            for leaf in self.leaves:
                leaf.grad.zero()
        clearing = bool(self.rng.random() < 0.7)
        seed = self.rng.choice([1.0, 0.5])
        seen.append(attempt(lambda: self.loss.backward(seed, clear_buffer=clearing)))
        seen += self.look()
        leaf = self.leaves[self.rng.integers(len(self.leaves))]
        if self.rng.random() < 0.7:
            leaf.d = self.rng.normal(size=leaf.shape)
        if self.rng.random() < 0.1:
            leaf.d = self.rng.normal(size=leaf.shape).astype(np.float64)
        if self.held and self.rng.random() < 0.2:
            chosen = self.held[self.rng.integers(len(self.held))]
            chosen.data = nn.NdArray(chosen.shape)
        return seen

    def look(self) -> list[Any]:
        """Returns the state of all held variables, and sometimes of all others."""
        variables = [*self.leaves, *self.held, self.loss]
        if self.rng.random() < 0.15:
            for f in self.functions:
                variables += f.inputs + f.outputs
        return [facts(v) for v in variables]


def attempt(f: Any) -> Any:
    """Returns the result of `f`, or class and text of its error."""
    try:
        return f()
    except (nn.ClearedError, nn.GraphError) as error:
        return type(error), str(error).partition("Variable")[0]


def facts(v: nn.Variable) -> list[Any]:
    """Returns everything that a program can observe of a variable: flags, counts and values."""
    arrays = []
    for array in (v.data, v.grad):
        values = attempt(lambda array=array: None if array.clear_called else array.data.tobytes())
        arrays.append((array.clear_called, array.modification_count, array.zeroing, values))
    return [v.shape, v.need_grad, v.persistent, v.rank, *arrays]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(200))
def test_optimised_runs_equal_plain_runs_bit_by_bit(seed: int, threads: int) -> None:
    if threads == 2 and seed % 3:
        seed += 1000
    before = nn.get_num_threads()
    nn.set_num_threads(threads)
    runs = []
    try:
        for how in ("plain", "optimised"):
            with plan(how):
                nn.seed(3)
                graph = Random(seed)
                runs.append([graph.step() for _ in range(5)])
    finally:
        nn.set_num_threads(before)
    for n, (plain, optimised) in enumerate(zip(*runs, strict=True)):
        assert plain == optimised, f"step {n}"


def leaf_and_loss(size: int, length: int = 30) -> tuple[nn.Variable, nn.Variable]:
    """Returns a leaf of `size` values and the mean of a chain of elementwise functions of it."""
    x = leaf_of(np.linspace(-1, 1, size, dtype=np.float32))
    return x, F.mean(chain(x, length, lambda h: F.tanh(h * 1.1) + 0.01))


def test_values_that_are_cleared_take_no_memory() -> None:
    _, loss = leaf_and_loss(1 << 18)
    for n in range(3):
        nn.reset_peak_memory()
        loss.forward(clear_buffer=True)
        if n:
            # The input. The first run is not fused and holds two more arrays.
            assert nn.memory_stats()["peak"] - nn.memory_stats()["live"] <= 2 << 20


def test_the_report_lists_fused_and_in_place_functions() -> None:
    _, loss = leaf_and_loss(4096, 2)
    text = nn.plan_report(loss)
    assert "forward: 1-6 in one pass" in text
    assert "backward: 6 functions in one pass" in text
    with plan("plain"):
        assert "pass" not in nn.plan_report(leaf_and_loss(4096, 2)[1])
    x = nn.Variable.from_numpy_array(np.ones((64, 64), np.float32), need_grad=True)
    assert "2 along with the function before" in nn.plan_report(F.mean(F.relu(F.affine(x, x))))


def test_the_report_of_inference() -> None:
    """`plan_report` of a clearing run lists fused functions, and its peak memory is the measured one."""
    before = nn.memory_stats()["live"]
    h = nn.Variable((64, 512))
    with nn.parameter_scope("foreseen", {}):
        for n in range(3):
            h = PF.affine(h, 512, name=f"{n}")
            h = F.relu(PF.batch_normalization(h, batch_stat=False, name=f"{n}"))
    *_, most, optimised = nn.plan_report(h, clear_buffer=True).splitlines()
    assert optimised.startswith("forward: 2-3 and 5-6 and 8-9 along with the function before")
    with plan("plain"):
        h.forward(clear_buffer=True)
        nn.reset_peak_memory()
        h.forward(clear_buffer=True)
    taken = nn.memory_stats()["peak"] - before
    assert most == f"{taken / 2**20:.2f} MiB at most with forward(clear_buffer=True)"


def test_broadcast_arrays_are_fused() -> None:
    """Forward, and backward if no gradients of the repeated arrays are needed."""
    x = nn.Variable((8, 16, 32, 32), need_grad=True)
    for shape in [(), (1,), (32,), (16, 1, 1), (1, 16, 1, 1), (8, 1, 1, 1), (8, 16, 1, 1), (32, 32)]:
        for need_grad in (False, True):
            other = nn.Variable(shape, need_grad=need_grad)
            y = F.mean(F.tanh(F.exp(x) * other))
            report = nn.plan_report(y)
            assert "forward: 1-3 in one pass" in report
            assert f"backward: {2 if need_grad else 3} functions in one pass" in report or need_grad
    y = F.mean(F.tanh(F.exp(x) * nn.Variable((8, 1, 32, 1))))
    assert "forward: 1-3" not in nn.plan_report(y)


def test_most_random_graphs_have_something_to_optimise() -> None:
    assert sum("pass" in nn.plan_report(Random(seed).loss) for seed in range(20)) > 10


def test_functions_are_fused_with_layers() -> None:
    """In many random graphs, functions are fused with the layer before them."""
    reports = [nn.plan_report(graph.loss) for graph in map(Random, range(60)) if graph.shape in LAYERED[1:]]
    assert sum("along with the function before" in report for report in reports) > 5


LAYERS: dict[str, tuple[tuple[int, ...], Callable[..., nn.Variable], tuple[int, ...]]] = {
    "affine": ((64, 96), F.affine, (96, 160)),
    "few rows": ((3, 96), F.affine, (96, 5000)),
    "direct": ((2, 12, 31, 29), lambda x, w: F.convolution(x, w, pad=(1, 1), stride=(2, 2)), (9, 12, 3, 3)),
    "winograd": ((2, 32, 29, 31), lambda x, w: F.convolution(x, w, pad=(1, 1)), (40, 32, 3, 3)),
    "few tiles": ((2, 64, 7, 7), lambda x, w: F.convolution(x, w, pad=(1, 1)), (64, 64, 3, 3)),
    "pointwise": ((2, 12, 31, 29), F.convolution, (9, 12, 1, 1)),
    "channel last": (
        (2, 31, 29, 12),
        lambda x, w: F.convolution(x, w, base_axis=1, pad=(1, 1), channel_last=True),
        (20, 3, 3, 12),
    ),
    "depthwise": ((2, 12, 31, 29), lambda x, w: F.depthwise_convolution(x, w, pad=(1, 1)), (12, 3, 3)),
    "transposed": ((2, 12, 31, 29), lambda x, w: F.deconvolution(x, w, stride=(2, 2)), (12, 9, 3, 3)),
}
"""By name: shape of the input, the layer as a function of input and weight, and shape of the weight."""


@pytest.mark.parametrize("name", LAYERS)
def test_normalization_residuals_and_activations_are_fused_with_layers(name: str) -> None:
    """As in inference: everything becomes one loop, which sees later writes to parameters."""
    shape, layer, w_shape = LAYERS[name]
    rng = np.random.default_rng(1)

    def drawn(*shape: int) -> nn.Variable:
        """Returns a variable of normal values without a gradient."""
        return nn.Variable.from_numpy_array(rng.normal(size=shape).astype(np.float32))

    def results(how: str) -> list[bytes]:
        """Returns the results for one kind of plan, as bytes."""
        with plan(how):
            nn.set_num_threads(2)
            found = []
            h = layer(x, w)
            y = F.tanh(F.relu(F.batch_normalization(h, *params, axes=[axis], batch_stat=False) + residual))
            if how == "optimised":
                assert "2-5 along with the function before" in nn.plan_report(y)
            for scale in (1.0, 1.0, 2.0):
                params[1].d *= scale
                y.forward(clear_buffer=True)
                found.append(y.d.tobytes())
            params[1].d *= 0.5
            return found

    x, w = drawn(*shape), drawn(*w_shape)
    y_shape = layer(x, w).shape
    axis = len(y_shape) - 1 if name == "channel last" else 1
    stats = [y_shape[i] if i == axis else 1 for i in range(len(y_shape))]
    params = [drawn(*stats) for _ in range(4)]
    params[3].d = np.abs(params[3].d) + 0.1
    residual = drawn(*y_shape)
    assert results("plain") == results("optimised")


def test_a_relu_with_a_visible_input_is_not_fused() -> None:
    """The input of a fused `relu` is invisible to the caller, or keeps its values."""
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64), need_grad=True)
    h = F.affine(x, x)
    y = F.relu(h)
    loss = F.mean(y)
    assert "2 along with the function before" in nn.plan_report(loss)
    for _ in range(3):
        loss.forward()
        assert h.d.min() < 0 and (y.d == np.maximum(h.d, 0)).all()
    for _ in range(3):
        loss.forward(clear_no_need_grad=True)
        h.parent.forward([h.parent.inputs[0], h.parent.inputs[1]], [h])
        assert h.d.min() < 0


def test_the_setting_of_plans_has_two_values() -> None:
    with pytest.raises(ValueError, match="'optimised' or 'plain', got 'fast'"):
        nn.config.plan = "fast"


@pytest.mark.parametrize("size", [64, 5000])
def test_hooks_see_every_function_and_its_inputs(size: int) -> None:
    x, loss = leaf_and_loss(size, 4)
    for _ in range(3):
        loss.forward(clear_no_need_grad=True)
        loss.backward(clear_buffer=True)
    seen: list[np.ndarray] = []
    loss.forward(clear_no_need_grad=True, function_post_hook=lambda f: seen.append(f.inputs[0].d.copy()))
    loss.backward(clear_buffer=True, function_post_hook=lambda f: seen.append(f.outputs[0].g.copy()))
    assert len(seen) == 2 * 13
    assert all(values.any() for values in seen)
    loss.forward(clear_no_need_grad=True)
    loss.backward(clear_buffer=True)
    assert x.g.any()


@pytest.mark.parametrize("in_place", [F.unlink, lambda x: F.reshape(x, (3, 2)), lambda x: F.reshape(F.unlink(x), (6,))])
@pytest.mark.parametrize("times", [0, 1, 3])
def test_in_place_functions_alias_the_current_array_of_a_leaf(in_place: Any, times: int) -> None:
    """A cached plan looks up the memory of aliased outputs in each run, as it does for leaves."""
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32), need_grad=True)
    h = in_place(x)
    y, z = h * 2.0, F.sum(h)
    for _ in range(times):
        y.forward(clear_no_need_grad=True)
        z.forward()
    x.data = nn.NdArray.from_numpy_array(np.full((2, 3), 5, np.float32))
    for _ in range(2):
        y.forward(clear_no_need_grad=True)
        z.forward()
        assert (y.d == 10).all() and (h.d == 5).all() and z.d == 30
    x.d = 7
    y.forward()
    assert (y.d == 14).all()
