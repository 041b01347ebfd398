"""Quantization-aware training: graphs and numbers equal NNabla 1.39's for the same networks."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.experimental.graph_converters as GC
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.utils import qnn
from kinnor.utils.nnp_graph import NnpLoader


def images(*shape, seed=3):
    """Returns random images."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def block(x, training=True):
    """Returns a block with a shortcut. Its parameters have fixed values by their order."""
    args = {"pad": (1, 1), "with_bias": False}
    h = F.relu(PF.batch_normalization(PF.convolution(x, 4, (3, 3), name="c1", **args), batch_stat=training, name="b1"))
    r = PF.batch_normalization(PF.convolution(h, 4, (3, 3), name="c2", **args), batch_stat=training, name="b2")
    h = F.average_pooling(F.relu(F.add2(r, h)), (2, 2))
    y = PF.affine(F.relu(PF.affine(h, 6, name="a1")), 5, name="a2")
    for place, (name, v) in enumerate(nn.get_parameters(grad_only=False).items()):
        values = np.random.RandomState(place).randn(*v.shape) * 0.3
        v.d = np.abs(values) + 0.5 if name.endswith(("var", "gamma")) else values
    return y


def configuration(kind=qnn.QATConfig, **args):
    """Returns a configuration with two steps of recording and these settings."""
    config = kind()
    config.niter_to_recording, config.niter_to_training = 0, 2
    for name, value in args.items():
        setattr(config, name, value)
    return config


def functions(y):
    """Returns the types of all functions above `y` in one line, with short names."""
    found = []
    y.visit(lambda f: found.append(f.info.type_name))
    return " ".join(found).replace("QuantizeLinear DequantizeLinear", "QD").replace("Recorder", "")


def schedule(config, network=block, solver=None):
    """Records for two steps. Returns the scheduler, the network for evaluation, and the functions while recording."""
    x, xv = nn.Variable((2, 3, 6, 6)), nn.Variable((2, 3, 6, 6))
    y, yv = network(x), network(xv, False)
    scheduler = qnn.QATScheduler(config, solver)
    scheduler(y)
    scheduler(yv, training=False)
    for step in range(2):
        scheduler.step()
        x.d = images(*x.shape, seed=step)
        y.forward()
    recording = functions(y)
    scheduler.step()
    xv.d = images(*x.shape)
    yv.forward()
    return scheduler, yv, recording


ROUND = qnn.QATConfig.RoundingMethod
"""Rounding methods of scales."""
CASES = {
    "plain": (
        {},
        "Convolution BatchNormalization MaxMva ReLU MaxMva MinMaxMinMax Convolution BatchNormalization MaxMva Add2 "
        "MaxMva ReLU MaxMva AveragePooling MaxMva MinMaxMinMax MinMaxMinMax Affine MaxMva ReLU Affine",
        "Convolution BatchNormalization QD ReLU QD QD Convolution BatchNormalization QD Add2 QD ReLU QD AveragePooling "
        "QD QD QD Affine QD ReLU Affine",
        [-0.20679, 0.2388, -0.00719, 0.13348, 0.39582],
    ),
    "tensorrt": (
        {"kind": qnn.QATTensorRTConfig},
        "Convolution MaxMva ReLU MaxMva MinMaxMinMax MinMaxMinMax Convolution Add2 MaxMva ReLU AveragePooling MaxMva "
        "MinMaxMinMax MinMaxMinMax Affine MaxMva ReLU Affine",
        "Convolution QD ReLU QD QD QD Convolution QD Add2 QD ReLU AveragePooling QD QD QD Affine QD ReLU Affine",
        [-0.19659, 0.22828, 0.0286, 0.11537, 0.38904],
    ),
    "all": (
        {
            "skip_inputs_layers": [],
            "skip_outputs_layers": [],
            "pow2": ROUND.NOTROUND,
            "narrow_range": True,
            "recorder_weight": qnn.AbsMaxRecorderCallback,
            "recorder_activation": qnn.MinMaxMvaRecorderCallback,
        },
        "MinMaxMva AbsMax Convolution BatchNormalization MinMaxMva ReLU MinMaxMva AbsMax Convolution "
        "BatchNormalization MinMaxMva Add2 MinMaxMva ReLU MinMaxMva AveragePooling MinMaxMva AbsMax AbsMax Affine "
        "MinMaxMva ReLU MinMaxMva AbsMax AbsMax Affine",
        "QD QD Convolution BatchNormalization QD ReLU QD QD Convolution BatchNormalization QD Add2 QD ReLU QD "
        "AveragePooling QD QD QD Affine QD ReLU QD QD QD Affine",
        [0.00302, 0.00464, 0.00126, 0.00031, -0.00391],
    ),
}
"""By name: arguments of the configuration, functions with recorders, functions after rounding, NNabla's output."""


@pytest.mark.parametrize(("args", "recording", "rounded", "values"), CASES.values(), ids=CASES)
def test_graphs_and_numbers_equal_nnablas(args, recording, rounded, values):
    """Each configuration gives NNabla's recorded graph, rounded graph and values."""
    scheduler, y, recorded = schedule(configuration(**args))
    assert recorded == recording
    assert functions(y) == rounded
    np.testing.assert_allclose(y.d[0], values, atol=1e-5)
    assert scheduler.state == qnn.QNNState.TRAINING


def test_outputs_are_recorded_too_if_wanted():
    """With the position `BOTH`, recorders are also inserted after functions."""
    both = qnn.QATConfig.RecorderPosition.BOTH
    args = {"recorder_weight": qnn.MaxMaxRecorderCallback, "recorder_activation": qnn.MaxMaxRecorderCallback}
    _, y, recorded = schedule(configuration(recorder_position=both, bn_self_folding=True, skip_bias=True, **args))
    assert recorded.startswith("MaxMax MaxMax Convolution MaxMax Mul2")
    assert recorded.endswith("Affine MaxMax ReLU MaxMax Affine")
    assert functions(y).endswith("QD QD Affine QD ReLU QD Affine")


def test_parameters_are_named_by_function_and_place():
    schedule(configuration())
    found = nn.get_parameters(grad_only=False)
    kept = {"M-x0", "m-w0", "M-w0", "m-w1", "M-w1"}
    made = {f"{kind}-{name}" for kind in ("scale", "zeropoint") for name in ("x0", "w0", "w1", "b")}
    assert {name.partition("/")[2] for name in found if name.startswith("Affine-8/")} == kept | made
    scales = [v.d.item() for name, v in found.items() if "/scale-" in name]
    assert scales == [2.0 ** round(np.log2(s)) for s in scales]
    assert not any("scale" in name or "/M-" in name for name in nn.get_parameters())


def test_the_network_keeps_learning():
    """The loss of a network still falls after it has been converted to quantized training."""
    config = configuration(kind=qnn.QATTensorRTConfig)
    x, t = nn.Variable((2, 3, 6, 6)), nn.Variable((2, 1))
    y = block(x)
    loss = F.mean(F.softmax_cross_entropy(y, t))
    solver = S.Sgd(0.4)
    solver.set_parameters(nn.get_parameters())
    scheduler = qnn.QATScheduler(config, solver)
    scheduler(y)
    x.d, t.d = images(*x.shape), [[0], [3]]
    losses = []
    for _ in range(40):
        scheduler.step()
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        losses.append(loss.d.item())
    assert solver.learning_rate() == pytest.approx(0.04)
    assert losses[0] == losses[1], "while ranges are recorded nothing is learnt"
    assert losses[-1] < 0.8 * losses[2]
    assert {"c1/conv/w-folded", "c1/conv/b-folded"} <= set(solver.get_parameters())


def test_several_outputs_and_functions_with_several_outputs():
    """Networks with several outputs, and functions with several, are quantized."""
    x = nn.Variable((2, 4))
    h = PF.affine(x, 4, name="a1")
    first, second = F.split(F.reshape(h, (2, 2, 2)), axis=1)
    y, z = PF.affine(first, 3, name="a2"), F.tanh(second)
    config = configuration(skip_inputs_layers=[], skip_outputs_layers=[])
    scheduler = qnn.QATScheduler(config)
    scheduler([y, z])
    for _ in range(3):
        scheduler.step()
        x.d = images(2, 4)
        nn.forward_all([y, z])
    assert functions(y).startswith("QD QD QD Affine QD Reshape QD Split QD")
    np.testing.assert_allclose(y.d, np.zeros((2, 3)), atol=0.2)
    np.testing.assert_allclose(z.d, np.zeros(z.shape), atol=0.2)


def test_recorders_pass_the_gradient():
    """The gradient of a recorder is the identity; without `training` it records nothing."""
    x = nn.Variable.from_numpy_array(np.float32([[-4, 1, 3]]), need_grad=True)
    m, M = nn.Variable.from_numpy_array([[0.0]]), nn.Variable.from_numpy_array([[0.0]])
    y = qnn.minmax_mva_recorder(x, m, M, decay=0.75)
    y.forward()
    y.backward(2.0)
    assert (m.d.item(), M.d.item()) == (-1.0, 0.75)
    assert x.g.tolist() == [[2.0, 2.0, 2.0]]
    for record, kept in [(qnn.abs_max_recorder, 4), (qnn.max_max_recorder, 3), (qnn.max_mva_recorder, 0.03)]:
        M.d = 0
        record(x, M, training=False).forward()
        assert M.d.item() == 0
        record(x, M).forward()
        assert M.d.item() == pytest.approx(kept)


def test_a_network_for_evaluation_is_written(tmp_path):
    """`QATScheduler.save` writes a network that computes the quantized values."""
    scheduler, y, _ = schedule(configuration())
    x = next(v for v in y_inputs(y) if v.shape == (2, 3, 6, 6))
    scheduler.save(str(tmp_path / "net.nnp"), x, batch_size=2)
    with nn.parameter_scope("", {}):
        network = NnpLoader(str(tmp_path / "net.nnp")).get_network("net", batch_size=2)
        network.inputs["x0"].d = x.d
        network.outputs["y0"].forward()
        np.testing.assert_allclose(network.outputs["y0"].d, y.d, atol=1e-6)


def y_inputs(y):
    """Returns the leaves of the graph above `y`."""
    found = []
    y.visit(lambda f: found.extend(v for v in f.inputs if v.parent is None))
    return found


WRONG = {
    "the order of steps": (lambda: qnn.QATScheduler(), ValueError, "got niter_to_recording 0 and niter_to_training -1"),
    "steps before the first": (
        lambda: qnn.QATScheduler(configuration(niter_to_recording=-1)),
        ValueError,
        "expected 0 <= niter_to_recording",
    ),
    "no variable": (
        lambda: qnn.QATScheduler(configuration())(3),
        TypeError,
        "to be a Variable or a list of them, got 3",
    ),
    "nothing to save": (
        lambda: qnn.QATScheduler(configuration()).save("x.nnp", []),
        ValueError,
        "expected a network taken in with `training=False`, got none",
    ),
    "to deploy": (
        lambda: qnn.QATScheduler(configuration()).save("x.nnp", [], deploy=True),
        NotImplementedError,
        "expected `deploy` False",
    ),
    "a mode": (
        lambda: GC.QuantizeRecordingToTrainingModifier({}, configuration(precision_mode=qnn.PrecisionMode.QNN)),
        NotImplementedError,
        "expected `precision_mode` PrecisionMode.SIM_QNN, got <PrecisionMode.QNN",
    ),
    "a shape": (
        lambda: qnn.max_max_recorder(nn.Variable((2, 3)), nn.Variable((1, 3))),
        ValueError,
        r"MaxMaxRecorder: expected `max` of shape \(1, 1\), got shape \(1, 3\)",
    ),
    "a number of inputs": (
        lambda: qnn.MaxMaxRecorder(nn.Context())(nn.Variable((1,))),
        ValueError,
        "MaxMaxRecorder: expected inputs x, max, got 1 inputs",
    ),
    "an average": (
        lambda: qnn.max_mva_recorder(nn.Variable((2,)), nn.Variable((1,)), decay=1.5),
        ValueError,
        "MaxMvaRecorder: expected `decay` from 0 to 1, got 1.5",
    ),
    "a rounding": (
        lambda: qnn.MaxMaxRecorderCallback.get_scale_zeropoint(nn.Variable((2,)), round_method="UP"),
        ValueError,
        "expected `round_method` to be one of CEIL, ROUND, FLOOR, NOTROUND, got 'UP'",
    ),
    "nothing to record": (lambda: qnn.MaxMaxRecorderCallback()(None), TypeError, "expected a Variable, got None"),
}
"""By name: a call that must raise, the class of the error, and part of its message."""


@pytest.mark.parametrize(("call", "kind", "told"), WRONG.values(), ids=WRONG)
def test_errors(call, kind, told):
    """Each wrong use raises the error class of its row, with a text that contains `told`."""
    with pytest.raises(kind, match=told) as found:
        call()
    assert isinstance(found.value, nn.Error)


def test_recording_is_needed_for_a_scale():
    """Without recorded values there is no scale, and no parameter is created."""
    assert qnn.AbsMaxRecorderCallback.get_scale_zeropoint(nn.Variable((2, 3)), name="x0") == (None, None)
    assert nn.get_parameters(grad_only=False) == {}


def test_lists_of_a_configuration_are_its_own():
    """Changing a list of one configuration does not change the defaults of others."""
    config = qnn.QATConfig()
    config.skip_inputs_layers.append("Affine")
    assert qnn.QATConfig().skip_inputs_layers == ["Convolution", "Deconvolution"]
    assert qnn.QATTensorRTConfig().record_layers[-1] == "ReLU"
