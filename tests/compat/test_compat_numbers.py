"""Quirks of NNabla's kernels exist only under NNabla's names. Each test runs in its own process."""

import numpy as np
import pytest
from test_compat import run

import kinnor as nn
import kinnor.functions as F

CHAIN = """
    import itertools
    import numpy as np
    import nnabla as nn
    import nnabla.functions as F
    from nnabla.ext_utils import get_extension_context

    rng = np.random.RandomState(0)

    def variables(*shapes):
        return [None if s is None else nn.Variable.from_numpy_array(rng.randn(*s).astype("f4")).apply(need_grad=True)
                for s in shapes]

    def activation(y, name, args):
        return y if name == "identity" else getattr(F, name)(y, *args)

    def runs(y, inputs):
        y.forward(clear_no_need_grad=True)
        for x in inputs:
            x.grad.zero()
        y.backward(seed)
        return [y.d.copy(), *[x.g.copy() for x in inputs]]
"""


@pytest.mark.parametrize("kind", ["half", "bfloat16", "float"])
def test_layers_of_fused_functions_round_as_a_chain_does(kind):
    """In NNabla's dialect, fused functions round after each layer."""
    out = run(
        CHAIN
        + f'''
    kind = "{kind}"
'''
        + """
    shape = (2, 6, 4, 4)
    seed = rng.randn(*shape).astype("f4")
    n = 0
    for pad, mode, batch_stat, adds, (name, args) in itertools.product(
        [(1, 1), (2, 1, 1, 2)], ["constant", "reflect"], [None, True, False], [False, True],
        [("identity", []), ("relu", []), ("tanh", []), ("elu", [0.2])],
    ):
        if len(pad) == 4:
            seed = rng.randn(2, 6, 5, 5).astype("f4")
        else:
            seed = rng.randn(*shape).astype("f4")
        x, w, z = variables((2, 4, 7, 7) if len(pad) == 2 else (2, 4, 8, 8), (6, 2, 3, 3), seed.shape if adds else None)
        beta, gamma, mean, variance = variables(*[None if batch_stat is None else (1, 6, 1, 1)] * 4)
        if batch_stat is not None:
            variance.d = np.abs(variance.d) + 0.5
            mean.need_grad = variance.need_grad = False
        constant = 0.0 if adds else 0.3
        with nn.context_scope(get_extension_context("cpu", type_config=kind)):
            batch = (0.9, 1e-5, True if batch_stat is None else batch_stat)
            fused = F.fused_convolution(x, w, None, beta, gamma, mean, variance, z, 1, pad, (2, 2), None, 2, False,
                                        *batch, name, args, mode, constant)
            assert fused.parent.info.type_name == "FusedConvolution"
            y = F.pad(x, pad if len(pad) == 4 else (1, 1, 1, 1), mode, constant)
            y = F.convolution(y, w, None, 1, None, (2, 2), None, 2)
            if batch_stat is not None:
                y = F.batch_normalization(y, beta, gamma, mean, variance, (1,), *batch)
            if adds:
                y = F.add2(y, z)
            y = activation(y, name, args)
        inputs = [v for v in (x, w, beta, gamma, z) if v is not None]
        kept = [v.d.copy() for v in (mean, variance) if v is not None]
        one = runs(fused, inputs)
        for v, d in zip([v for v in (mean, variance) if v is not None], kept):
            v.d = d
        other = runs(y, inputs)
        for k, (a, b) in enumerate(zip(one, other)):
            if k == 0:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 if kind == "float" else 0)
            else:
                np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2 if kind != "bfloat16" else 0.2)
        n += 1
    print(n)
"""
    )
    assert out == ["96"]


HALF = """
    import numpy as np
    import nnabla as nn
    import nnabla.functions as F
    x, w = (nn.Variable.from_numpy_array(np.float32(v)).apply(need_grad=True) for v in ([1 / 3], [1 / 7]))
    with nn.context_scope(nn.Context(["cpu:half"])):
        y = F.mul2(x, w)
        z = F.mul2(x.data, w.data)
    y.forward()
    x.g = 0
    y.backward(np.float32([1 / 11]))
    print(float(y.d[0]), float(z.data[0]), float(x.g[0]))
"""


def test_inputs_of_functions_in_half_precision():
    """Under NNabla's names inputs are rounded to half before a product; natively only the result is."""
    found = [float(v) for v in run(HALF)]
    half = [np.float32(np.float16(v)) for v in (1 / 3, 1 / 7, 1 / 11)]
    assert found == [np.float16(half[0] * half[1])] * 2 + [np.float16(half[1] * half[2])]
    x, w = (nn.NdArray.from_numpy_array(np.float32([v])) for v in (1 / 3, 1 / 7))
    with nn.context_scope(nn.Context(["cpu:half"])):
        assert F.mul2(x, w).data == np.float16(np.float32(1 / 3) * np.float32(1 / 7))


def test_natively_a_fused_function_rounds_once():
    """Outside NNabla's dialect, a fused function in half precision rounds only its result."""
    rng = np.random.RandomState(0)
    x, w, z = (
        nn.Variable.from_numpy_array(rng.randn(*s).astype(np.float16).astype(np.float32))
        for s in ((2, 4, 7, 7), (6, 4, 3, 3), (2, 6, 5, 5))
    )

    def y(**given):
        """Returns the value of a fused convolution."""
        made = F.fused_convolution(x, w, z=z, nonlinearity="tanh", **given)
        made.forward()
        return made.d.copy()

    exact = y()
    with nn.context_scope(nn.Context(["cpu:half"])):
        half = y()
    np.testing.assert_array_equal(half.astype(np.float32), exact.astype(np.float16).astype(np.float32))


SORTED = """
    import numpy as np
    import nnabla as nn
    import nnabla.functions as F
    for shape, axis in [((7,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 4, 3), -2)]:
        for reverse in (False, True):
            for only_index in (False, True):
                a = np.random.RandomState(1).rand(*shape).astype("f4")
                seed = np.random.RandomState(2).rand(*shape).astype("f4")
                x = nn.Variable.from_numpy_array(a).apply(need_grad=True)
                y = F.sort(x, axis, reverse, only_index=only_index)
                y.forward()
                order = np.argsort(a, axis)
                order = np.flip(order, axis) if reverse else order
                expected = np.take_along_axis(seed, order, axis)
                for adds in (0, 1):
                    x.g = adds
                    y.backward(seed)
                    np.testing.assert_allclose(x.g, expected + adds, rtol=1e-6)
                (g,) = nn.grad([y], [x], grad_outputs=[seed])
                g.forward()
                np.testing.assert_allclose(g.d, expected, rtol=1e-6)
    print("done")
"""


def test_the_gradient_of_sort():
    """Under NNabla's names `sort` has NNabla's gradient; natively it is the right one."""
    assert run(SORTED) == ["done"]
    x = nn.Variable.from_numpy_array([3.0, 1.0, 2.0], need_grad=True)
    y = F.sort(x)
    y.forward()
    x.grad.zero()
    y.backward(np.array([1.0, 10.0, 100.0]))
    assert x.g.tolist() == [100, 1, 10]


EINSUM = """
    import numpy as np
    import nnabla as nn
    import nnabla.functions as F
    import nnabla.utils.load as load
    import nnabla.utils.save as save

    rng = np.random.RandomState(0)
    a, b = rng.rand(3, 4).astype("f4"), rng.rand(4, 5).astype("f4")
    x, w = (nn.Variable.from_numpy_array(v).apply(need_grad=True) for v in (a, b))
    y = F.einsum(x, w, equation="ij,jk->ki")
    assert (y.parent.name, y.parent.info.args, y.parent.inputs) == ("Einsum", {"equation": "ij,jk->ki"}, [x, w])
    seed = rng.rand(5, 3).astype("f4")
    for adds in (0, 1):
        y.forward(clear_no_need_grad=True)
        x.g = w.g = adds
        y.backward(seed, clear_buffer=True)
        np.testing.assert_allclose(y.d, (a @ b).T, rtol=1e-5)
        np.testing.assert_allclose(x.g, (b @ seed).T + adds, rtol=1e-5)
        np.testing.assert_allclose(w.g, (seed @ a).T + adds, rtol=1e-5)
    (g,) = nn.grad([F.sum(y ** 2)], [x])
    (h,) = nn.grad([F.sum(g ** 2)], [w])
    nn.forward_all([g, h])
    np.testing.assert_allclose(g.d, 2 * (a @ b) @ b.T, rtol=1e-5)
    difference = np.zeros_like(b, float)
    for i in np.ndindex(b.shape):
        for sign in (1, -1):
            c = b.astype(float)
            c[i] += sign * 1e-5
            difference[i] += sign * ((2 * (a @ c) @ c.T) ** 2).sum() / 2e-5
    np.testing.assert_allclose(h.d, difference, rtol=1e-4)

    # The inputs change between the runs, in place and in shape; one of them twice.
    y.forward()
    x.d = a * 2
    w.d = b * 2
    y.forward()
    np.testing.assert_allclose(y.d, 4 * (a @ b).T, rtol=1e-5)
    x.reset_shape((2, 4), True)
    x.d = a[:2]
    y.forward()
    x.g = 0
    y.backward()
    np.testing.assert_allclose(y.d, 2 * (a[:2] @ b).T, rtol=1e-5)
    np.testing.assert_allclose(x.g, np.tile(2 * b.sum(1), (2, 1)), rtol=1e-5)
    v = nn.Variable.from_numpy_array(a[0]).apply(need_grad=True)
    z = F.einsum(v, v, equation="i,i")
    z.forward()
    v.g = 0
    z.backward()
    np.testing.assert_allclose(v.g, 2 * a[0], rtol=1e-6)
    with nn.auto_forward():
        np.testing.assert_allclose(F.einsum(v, v, equation="i,i").d, (a[0] ** 2).sum(), rtol=1e-6)
    assert np.allclose(F.einsum(v.data, v.data, equation="i,i").data, (a[0] ** 2).sum())

    # Files hold it, as NNabla's do.
    p = nn.parameter.get_parameter_or_create("p", (4, 5))
    x = nn.Variable((3, 4))
    y = F.einsum(x, p, equation="ij,jk->ki")
    save.save("net.nnp", {
        "networks": [{"name": "net", "batch_size": 3, "outputs": {"y": y}, "names": {"x": x}}],
        "executors": [{"name": "run", "network": "net", "data": ["x"], "output": ["y"]}],
    })
    network = nn.graph_def.load("net.nnp").default_graph()
    assert [f.type for f in network.functions.values()] == ["Einsum"], network.functions
    x.d = a
    z = network(x)
    nn.forward_all([y, z])
    np.testing.assert_allclose(z.d, y.d, rtol=1e-6)
    print("done")
"""


def test_einsum_is_one_function(tmp_path, monkeypatch):
    """In NNabla's dialect, `einsum` is a single node of the graph."""
    monkeypatch.chdir(tmp_path)
    assert run(EINSUM) == ["done"]


def test_small_things():
    """Padded packed sequences, copies across types, the gradient of dropout, slices backward, renamed variables."""
    out = run("""
        import numpy as np
        import nnabla as nn
        import nnabla.functions as F
        from nnabla.ext_utils import get_extension_context
        from nnabla.backward_functions import registry

        packed = nn.Variable.from_numpy_array(np.arange(6, dtype="f4"))
        sizes = nn.Variable.from_numpy_array(np.array([3, 2, 1]))
        with nn.auto_forward():
            for total, steps in ((2, 3), (5, 5)):
                y, lengths = F.pad_packed_sequence(packed, sizes, False, 7.0, total)
                assert y.shape == (steps, 3) and lengths.d.tolist() == [3, 2, 1]
                assert y.d[:3].tolist() == [[0, 1, 2], [3, 4, 0], [5, 0, 0]] and not y.d[3:].any()

        a, b = nn.NdArray((2,)), nn.NdArray((2,))
        b.cast(np.uint8)[...] = 3
        a.copy_from(b)
        assert a.dtype == np.uint8
        b.zero()
        a.copy_from(b)
        assert a.dtype == np.float32

        # The gradient of a dropout as a graph, without shapes.
        x, dy = (nn.Variable.from_numpy_array(np.ones((2, 3))).apply(need_grad=True) for _ in range(2))
        y = F.dropout(x, 0.5, 313)
        dx = registry["Dropout"]([dy], [x], [None], [None], [None], 0.5, 313)
        y.forward()
        dx.forward()
        assert np.array_equal(dx.d, y.d)

        assert F.slice(x, (-1, -1), (-3, -3), (-1, -1)).parent.arguments == x[::-1, :-3:-1].parent.arguments

        from nnabla.core.graph_optimizer import rename_variable
        graph = nn.graph_def.create_graph_from_variable("net", [y], names={"y": y})
        rename_variable(graph.networks["net"], {"y": "z"})
        assert graph.networks["net"].outputs == ["z"]
        print("done")
    """)
    assert out == ["done"]


@pytest.mark.parametrize("is_add", [False, True])
def test_gradients_of_fused_batch_normalization_by_name(is_add):
    """The class that NNabla has for the gradient of `fused_batch_normalization` gives the right gradients."""
    out = run(f"""
        import numpy as np
        import nnabla as nn
        import nnabla.functions as F
        from nnabla.backward_function.fused_batch_normalization import FusedBatchNormalizationBackward

        rng = np.random.RandomState(0)
        shapes = [(4, 3, 5), (1, 3, 1), (1, 3, 1), (1, 3, 1), (1, 3, 1), (4, 3, 5)]
        x, beta, gamma, mean, variance, z = (
            nn.Variable.from_numpy_array(rng.rand(*s).astype("f4")).apply(need_grad=True) for s in shapes
        )
        given = [z] if {is_add} else []
        y = F.fused_batch_normalization(x, beta, gamma, mean, variance, *given, eps=1e-3)
        y.forward()
        dy = rng.rand(*y.shape).astype("f4")
        wanted = [x, beta, gamma, *given]
        for v in wanted:
            v.grad.zero()
        y.backward(dy)
        back = FusedBatchNormalizationBackward(None, [1], 0.9, 1e-3, True, "relu")
        back.is_add = {is_add}
        held = nn.Variable.from_numpy_array(y.d)
        found = back(nn.Variable.from_numpy_array(dy), x, beta, gamma, mean, variance, held, *given)
        assert len(found) == len(wanted)
        nn.forward_all(found)
        for g, v in zip(found, wanted):
            np.testing.assert_allclose(g.d, v.g, rtol=1e-4, atol=1e-5)
        print("done")
    """)
    assert out == ["done"]


def test_recurrent_layers_by_steps():
    """Recurrent layers equal the same layers unrolled step by step."""
    out = run("""
        import numpy as np
        import nnabla as nn
        import nnabla.functions as F
        import nnabla.utils.rnn as rnn

        rng = np.random.RandomState(0)
        inputs, hidden, steps, batch = 3, 4, 5, 2

        def variable(*shape):
            return nn.Variable.from_numpy_array(rng.randn(*shape).astype("f4")).apply(need_grad=True)

        for gates, biases, n_states, whole, unrolled in [
            (None, None, 1, F.rnn, rnn._create_fixed_length_rnn),
            (3, 4, 1, F.gru, rnn._create_fixed_length_gru),
            (4, 4, 2, F.lstm, rnn._create_fixed_length_lstm),
        ]:
            for layers in (1, 2):
                for directions in (1, 2):
                    def of(n):
                        return () if n is None else (n,)
                    x = variable(steps, batch, inputs)
                    states = [variable(layers, directions, batch, hidden) for _ in range(n_states)]
                    first = variable(directions, *of(gates), hidden, inputs + hidden)
                    rest = variable(layers - 1, directions, *of(gates), hidden, directions * hidden + hidden) \
                        if layers > 1 else None
                    for bias in (None, variable(layers, directions, *of(biases), hidden)):
                        how = {} if gates else {"nonlinearity": "relu"}
                        one = whole(x, *states, first, rest, bias, num_layers=layers, dropout=0.0,
                                    bidirectional=directions == 2, **how)
                        more = [] if gates else ["relu"]
                        other = unrolled(x, *states, first, rest, bias, layers, *more, directions, bias is not None)
                        nn.forward_all([*one, *other])
                        for a, b in zip(one, other):
                            np.testing.assert_allclose(np.reshape(b.d, a.shape), a.d, rtol=1e-4, atol=1e-5)
        print("done")
    """)
    assert out == ["done"]
