"""`fit`: training runs in one call, their callbacks, and going on from checkpoints."""

import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.data.data_iterator import data_iterator_simple
from kinnor.datasets import digits
from kinnor.files.progress import Progress, is_notebook
from kinnor.learning_rate_scheduler import CosineScheduler, PlateauScheduler
from kinnor.training import Callback, EarlyStopping, History, fitting, losses

IMAGES, LABELS = digits()
TRAIN, TEST = (IMAGES[:600], LABELS[:600]), (IMAGES[1500:], LABELS[1500:])
"""Digits to train on, and digits to test with: images and labels."""


@pytest.fixture(autouse=True)
def seeded():
    """Seeds the random numbers of the test."""
    nn.seed(0)


def network(dropout=0.0):
    """Returns a small network for digits."""
    return L.Sequential(
        L.Flatten(), L.Linear(64, 32), L.BatchNorm1d(32), L.ReLU(), L.Dropout(dropout), L.Linear(32, 10)
    )


def fitted(module, **arguments):
    """Fits a module to digits without printing."""
    known = {"epochs": 2, "validation": TEST, "metrics": "accuracy", "verbose": False, "solver": S.Adam(alpha=0.01)}
    return nn.fit(module, TRAIN, "cross_entropy", **{**known, **arguments})


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_module_learns(dynamic):
    """`fit` raises the accuracy, and records losses and metrics of each epoch."""
    module = network(0.2)
    with nn.auto_forward(dynamic):
        history = fitted(module, epochs=3)
    assert history.series("epoch") == [1, 2, 3]
    assert history[-1]["val_accuracy"] > 0.8 > history[0]["accuracy"] * 0.99
    assert history[-1]["loss"] < history[0]["loss"]
    assert module.training and all(each.training for each in module)
    assert repr(history).splitlines()[0].split() == list(history[0])


def test_values_of_the_validation_are_those_of_all_rows():
    """Validation averages over all rows, also in a smaller last batch."""
    module = network()
    history = fitted(module, epochs=1, batch_size=64)
    with nn.auto_forward():
        y = module.eval()(nn.Variable.from_numpy_array(TEST[0])).d
    assert history[-1]["val_accuracy"] == pytest.approx((y.argmax(1) == TEST[1]).mean(), abs=1e-6)
    log = y - np.log(np.exp(y).sum(1, keepdims=True))
    assert history[-1]["val_loss"] == pytest.approx(-log[np.arange(len(y)), TEST[1]].mean(), rel=1e-4)


@pytest.mark.parametrize("use_thread", [False, True])
@pytest.mark.parametrize(("size", "batch_size"), [(50, 16), (48, 16), (5, 8), (7, 7)])
def test_each_example_of_an_iterator_counts_once_in_a_validation(size, batch_size, use_thread):
    x, t = np.random.RandomState(0).rand(2, size, 1).astype(np.float32)
    module = L.Linear(1, 1)
    with data_iterator_simple(lambda i: (x[i], t[i]), size, batch_size, shuffle=True, use_thread=use_thread) as other:
        solver = S.Sgd(lr=0)
        history = nn.fit(module, (x, t), "mse", solver=solver, validation=other, epochs=3, verbose=False)
        assert other.epoch == 3
    expected = float(((x @ module.W.d + module.b.d - t) ** 2).mean())
    assert history.series("val_loss") == pytest.approx([expected] * 3, rel=1e-5)


def test_a_validation_by_an_iterator_that_stops():
    x = np.arange(7, dtype=np.float32)[:, None]
    module = L.Linear(1, 1, w_init=np.ones((1, 1), np.float32))
    with data_iterator_simple(lambda i: (x[i], 0 * x[i]), 7, 2, stop_exhausted=True) as other:
        history = nn.fit(
            module, (x, x), "mse", solver=S.Sgd(lr=0), validation=other, epochs=3, verbose=False, shuffle=False
        )
    assert history.series("val_loss") == pytest.approx([float((x[:6] ** 2).mean())] * 3)
    with data_iterator_simple(lambda i: (x[i], x[i]), 7, 8, stop_exhausted=True) as small:
        for data in ({"data": small}, {"data": (x, x), "validation": small}):
            with pytest.raises(nn.ShapeError, match="expected a DataIterator with at least one batch of 8 examples"):
                nn.fit(module, loss="mse", verbose=False, **data)


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("loss", ["binary_cross_entropy", F.sigmoid_cross_entropy, F.binary_cross_entropy])
def test_accuracy_of_one_output_has_a_threshold(loss, shape):
    x = np.array([-2, -1, -0.5, 0.2, 0.3, 4], np.float32)[:, None]
    t = np.array([0, 1, 0, 0, 1, 1])
    module = L.Linear(1, 1, w_init=np.ones((1, 1), np.float32))
    if loss is F.binary_cross_entropy:  # Takes probabilities.
        module = L.Sequential(module, L.Sigmoid())
    history = nn.fit(
        module, (x, t.reshape((6, 1)) if callable(loss) else t.reshape(shape)), loss, solver=S.Sgd(lr=0),
        metrics="accuracy", validation=(x, t[:, None]), epochs=1, verbose=False,
    )  # fmt: skip
    assert history[-1]["accuracy"] == history[-1]["val_accuracy"] == pytest.approx(4 / 6)


def test_accuracy_of_several_answers_of_yes_and_no():
    x = np.array([[-1, 2], [3, -4]], np.float32)
    module = L.Linear(2, 2, w_init=np.eye(2, dtype=np.float32))
    history = nn.fit(
        module, (x, np.array([[0, 1], [1, 1]])), "binary_cross_entropy", solver=S.Sgd(lr=0), metrics=["accuracy"],
        epochs=1, verbose=False,
    )  # fmt: skip
    assert history[-1]["accuracy"] == 0.75


def test_ignored_labels_do_not_count_for_the_accuracy():
    x = np.eye(3, dtype=np.float32)
    module = L.Linear(3, 3, w_init=x)
    history = nn.fit(
        module, (x, np.array([0, -1, 1])), "cross_entropy", solver=S.Sgd(lr=0), metrics="accuracy", epochs=1,
        verbose=False,
    )  # fmt: skip
    assert history[-1]["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("outputs", "targets", "loss", "metrics", "told"),
    [
        (1, np.zeros((4, 1)), "cross_entropy", (), 'the loss is "binary_cross_entropy"'),
        (1, np.zeros((4, 1)), "mse", "accuracy", "expected a metric for values, such as 'mse', got 'accuracy'"),
        (3, np.zeros((4, 3)), "mse", "accuracy", "expected a metric for values, such as 'mse', got 'accuracy'"),
        (1, np.zeros((4, 1)), F.huber_loss, "accuracy", "expected a metric for values"),
        (1, np.zeros((4, 1)), lambda y, t: F.mean(y), "accuracy", "an output for each of at least two classes"),
        (
            3,
            np.zeros((4, 1)),
            "mse",
            (),
            "expected targets of the shape of the outputs, (4, 3), got shape (4, 1)",
        ),
        (3, np.zeros(4), "mse", (), "mse: expected targets of the shape of the outputs, (4, 3), got shape (4,)"),
        (2, np.zeros(4), "binary_cross_entropy", (), "binary_cross_entropy: expected targets of the shape"),
        (1, np.zeros(4), F.squared_error, (), "squared_error: expected inputs with the same number of axes"),
        (1, np.zeros(4), F.sigmoid_cross_entropy, (), "sigmoid_cross_entropy"),
    ],
)
def test_losses_and_metrics_that_do_not_fit_the_outputs(outputs, targets, loss, metrics, told):
    data = (np.zeros((4, 2), np.float32), targets)
    with pytest.raises((nn.ShapeError, nn.CallError)) as raised:
        nn.fit(L.Linear(2, outputs), data, loss, metrics=metrics, verbose=False)
    assert told in str(raised.value)


def test_a_model_without_a_last_axis_and_targets_with_one():
    x = np.ones((4, 2), np.float32)
    weights = L.Linear(2, 1)

    def model(x):
        """Returns one value for each row, shape (n,)."""
        return weights(x).reshape(-1)

    for loss in ("mse", "binary_cross_entropy"):
        history = nn.fit(model, (x, np.ones((4, 1))), loss, parameters=weights, epochs=2, verbose=False)
        assert history[1]["loss"] < history[0]["loss"]


def test_modes_are_put_back():
    """After `fit` each module has the mode that it had before, and frozen statistics are unchanged."""
    module = network()
    module[2].eval()
    mean = module[2].mean.d.copy()
    fitted(module, epochs=1)
    assert [each.training for each in module] == [True, True, False, True, True, True]
    np.testing.assert_array_equal(module[2].mean.d, mean)


def test_a_function_of_a_batch_is_trained_too():
    """`fit` takes a function from a batch to loss and metrics instead of a model and a loss."""
    seen = set()

    def step(x, t, training):
        """Builds loss and metric of a small network with batch normalization. Notes `training`."""
        seen.add(training)
        h = PF.batch_normalization(PF.affine(x, 32), batch_stat=training)
        y = PF.affine(F.relu(h), 10, name="last")
        return F.mean(F.softmax_cross_entropy(y, F.reshape(t, (-1, 1)))), {"size": F.mean(F.abs(y))}

    batches = [(IMAGES[i : i + 50], LABELS[i : i + 50]) for i in range(0, 300, 50)]
    history = nn.fit(step, batches, epochs=3, validation=batches[:2], solver=S.Sgd(lr=0.1), verbose=False)
    assert seen == {True, False}
    assert history[-1]["loss"] < history[0]["loss"]
    assert {"size", "val_size"} <= set(history[0])


def test_data_iterators_are_taken():
    """`fit` accepts a data iterator, and reads whole epochs of it."""
    with data_iterator_simple(lambda i: (IMAGES[i], LABELS[i]), 300, 50, shuffle=True) as data:
        history = nn.fit(network(), data, "cross_entropy", epochs=2, verbose=False)
        assert (data.epoch, data.position) in [(2, 0), (1, 300)]
    assert len(history) == 2


def test_a_step_is_what_the_loop_by_hand_does():
    """`fit` trains exactly as the loop of forward, backward and update."""
    one, other = network(), network()
    other.load_state_dict(one.state_dict())
    rows = np.random.RandomState([313, 0]).permutation(600)[:600]
    nn.fit(one, TRAIN, "cross_entropy", epochs=1, batch_size=100, solver=S.Momentum(lr=0.1), verbose=False)
    solver = S.Momentum(lr=0.1)
    solver.set_parameters(other)
    x, t = nn.Variable((100, 1, 8, 8)), nn.Variable((100, 1))
    loss = F.mean(F.softmax_cross_entropy(other(x), t))
    for i in range(0, 600, 100):
        x.d, t.d = IMAGES[rows[i : i + 100]], LABELS[rows[i : i + 100], None]
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
    for name, v in one.state_dict().items():
        np.testing.assert_allclose(v.d, other.state_dict()[name].d, rtol=1e-5, atol=1e-6)


def test_accumulated_batches_are_one_large_batch():
    """`accumulate=2` with half batches trains as one batch of double size."""

    def trained(**arguments):
        """Returns a linear model after one epoch of `fit` with these arguments."""
        nn.seed(3)
        module = L.Sequential(L.Flatten(), L.Linear(64, 10))
        nn.fit(module, TRAIN, "cross_entropy", epochs=1, solver=S.Sgd(lr=0.5), verbose=False, **arguments)
        return module

    one, other = trained(batch_size=100), trained(batch_size=50, accumulate=2)
    np.testing.assert_allclose(one[1].W.d, other[1].W.d, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("accumulate", [2, 3, 4, 7, 100])
def test_no_batch_of_an_epoch_is_left_out_of_accumulation(accumulate):
    class Steps(Callback):
        """Counts the updates and the batches that they are made of."""

        def __init__(self):
            self.sizes, self.seen = [], 0

        def on_step_end(self, run):
            """Adds the number of batches since the last update."""
            self.sizes.append(len(inputs) - self.seen)
            self.seen = len(inputs)

    inputs = []

    def loss(x):
        """Returns the loss of a batch in dynamic mode, and counts the batch."""
        inputs.append(x)
        return F.mean(PF.affine(x, 1, with_bias=False, w_init=nn.initializer.ConstantInitializer(0.0), name="a"))

    batches = [np.full((2, 1), i, np.float32) for i in range(7)]
    steps = Steps()
    with nn.auto_forward():
        loss(nn.Variable((2, 1)))
        inputs.clear()
        nn.fit(loss, batches, epochs=1, accumulate=accumulate, callbacks=[steps], solver=S.Sgd(lr=1), verbose=False)
    sizes = [min(accumulate, 7 - i) for i in range(0, 7, accumulate)]
    assert steps.sizes == sizes
    means = [np.mean(range(i, min(i + accumulate, 7))) for i in range(0, 7, accumulate)]
    np.testing.assert_allclose(nn.get_parameters()["a/affine/W"].d, -sum(means), rtol=1e-6)


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_values_in_16_bits_have_the_digits_of_float32(kind):
    rows, wrong = 1000, 1
    x = np.tile(np.array([[4.0, -4.0]], np.float32), (rows, 1))
    t = np.zeros(rows, np.int64)
    t[:wrong] = 1
    with nn.autocast(kind):
        module = L.Linear(2, 2)
        module.W.d, module.b.d = np.eye(2), 0.0
        history = nn.fit(
            module,
            (x, t),
            "cross_entropy",
            metrics={"accuracy": "accuracy", "rows": lambda y, t: F.mean(y * y, axis=1)},
            validation=(x, t),
            epochs=1,
            batch_size=rows,
            solver=S.Sgd(lr=0),
            verbose=False,
        )
    assert history[-1]["val_accuracy"] == pytest.approx(1 - wrong / rows, abs=1e-6)
    exact = np.log1p(np.exp(-8)) + 8 * wrong / rows
    assert history[-1]["loss"] == pytest.approx(exact, rel=1e-5)
    assert history[-1]["val_loss"] == pytest.approx(exact, rel=1e-5)
    assert history[-1]["rows"] == pytest.approx(16, rel=1e-6)


def test_schedules_clipping_and_decay():
    """`fit` applies a learning rate schedule, gradient clipping and weight decay."""
    rates, module = [], network()
    solver = S.Sgd(lr=1.0)

    class Rates(Callback):
        """Records the learning rate of each step."""

        def on_step_end(self, run):
            """Records the learning rate."""
            rates.append(run.solver.learning_rate())

    schedule = CosineScheduler(0.1, 12)
    fitted(
        module, solver=solver, batch_size=100, schedule=schedule, callbacks=[Rates()], clip_norm=0.1, weight_decay=0.1
    )
    assert rates == pytest.approx([schedule.get_learning_rate(i) for i in range(12)])


def test_plateaus_lower_the_rate():
    """`PlateauScheduler` lowers the rate when the value stops improving, down to `min_lr`."""
    schedule = PlateauScheduler(0.1, factor=0.5, patience=0, min_lr=0.03)
    assert [schedule.update(value) for value in (1.0, 1.0, 1.0, 1.0, 0.5)] == pytest.approx(
        [0.1, 0.05, 0.03, 0.03, 0.03]
    )
    again = PlateauScheduler(0.1)
    again.set_state(schedule.state())
    assert again.get_learning_rate(7) == pytest.approx(0.03)
    rising = PlateauScheduler(0.1, patience=0, mode="max")
    assert [rising.update(value) for value in (1.0, 2.0, 1.5)] == pytest.approx([0.1, 0.1, 0.01])
    with pytest.raises(ValueError, match="`factor` to be between 0 and 1"):
        PlateauScheduler(0.1, factor=1)
    schedule = PlateauScheduler(0.01, patience=0, threshold=1.0)
    history = fitted(network(), epochs=3, schedule=schedule, monitor="accuracy")
    assert history.series("learning_rate") == pytest.approx([0.01, 0.01, 0.001])


def test_early_stopping_restores_the_best_parameters():
    """`EarlyStopping` ends the run after `patience` epochs without a better value."""
    kept, values = [], iter([3.0, 1.0, 2.0, 2.0, 0.0])
    module = network()

    def note(run):
        """Sets the value that early stopping watches, and notes the parameters."""
        run.logs["mine"] = next(values)
        kept.append({name: v.d.copy() for name, v in module.state_dict().items()})

    stopping = EarlyStopping("mine", patience=2)
    history = fitted(module, epochs=5, callbacks=[note, stopping])
    assert (len(history), stopping.best, stopping.best_epoch) == (4, 1.0, 2)
    for name, v in module.state_dict().items():
        np.testing.assert_array_equal(v.d, kept[1][name])
    with pytest.raises(ValueError, match=r"expected `monitor` to be one of \['epoch', 'loss', .* got 'val_los'"):
        fitted(network(), callbacks=[EarlyStopping("val_los")])
    with pytest.raises(ValueError, match="'min' or 'max'"):
        EarlyStopping(mode="least")


class Stop(Callback):
    """Ends the training after an epoch, as if the program had been killed."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_begin(self, run):
        """Raises KeyboardInterrupt at the start of epoch number `epoch`."""
        if run.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["arrays", "iterator"])
def test_a_run_that_goes_on_ends_in_the_same_bits(tmp_path, kind):
    """A training resumed from a checkpoint ends with the same bits."""

    def run(path, *callbacks, resume=True):
        """Trains with a checkpoint at `path`. Returns history, parameters and the stopping callback."""
        nn.seed(4)
        module, stopping = network(0.3), EarlyStopping(patience=9)
        data = TRAIN
        if kind == "iterator":
            data = data_iterator_simple(lambda i: (IMAGES[i], LABELS[i]), 300, 50, shuffle=True)
        history = nn.fit(
            module, data, "cross_entropy", epochs=4, validation=TEST, solver=S.Adam(), checkpoint=path, resume=resume,
            schedule=PlateauScheduler(0.01, patience=0, threshold=0.9), callbacks=[stopping, *callbacks], verbose=False,
        )  # fmt: skip
        return history, {name: v.d.copy() for name, v in module.state_dict().items()}, stopping

    whole, expected, one = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", Stop(3))
    history, found, other = run(tmp_path / "parts")
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert history.series("loss") == whole.series("loss")
    assert history.series("learning_rate") == whole.series("learning_rate")
    assert (one.best, one.best_epoch) == (other.best, other.best_epoch)
    assert len(run(tmp_path / "parts")[0]) == 4, "nothing is left to do"


def test_callbacks_are_called_in_order():
    """`fit` calls the methods of callbacks in the documented order."""
    seen = []

    class Notes(Callback):
        """Records the names of the methods that are called."""

        def on_train_begin(self, run):
            """Records the call."""
            seen.append("begin")

        def on_epoch_begin(self, run):
            """Records the epoch."""
            seen.append(f"epoch {run.epoch}")

        def on_step_end(self, run):
            """Records the step, and stops the run at step 5."""
            seen.append(f"step {run.step}")
            if run.step == 5:
                run.stop()

        def on_epoch_end(self, run):
            """Records the epoch."""
            seen.append(f"end {run.epoch}")

        def on_train_end(self, run):
            """Records the call."""
            seen.append("done")

    history = fitted(network(), batch_size=200, callbacks=[Notes()])
    assert seen == ["begin", "epoch 1", "step 1", "step 2", "step 3", "end 1", "epoch 2", "step 4", "step 5", "done"]
    assert len(history) == 1


def test_lines_are_printed(capsys):
    """With `verbose`, `fit` prints a line for each epoch."""
    fitted(network(), epochs=1, verbose=True)
    text = capsys.readouterr().out
    assert text.startswith("epoch 1 of 1: loss ") and "val_accuracy 0." in text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((3, TRAIN), "expected `model` to be a module or a function, got int"),
        ((network(), IMAGES), "expected a tuple of arrays, a DataIterator or a list of batches as data, got ndarray"),
        ((network(), (IMAGES, LABELS[:5])), "one and the same number of rows"),
        ((network(), TRAIN, "cross_entrpy"), "did you mean 'cross_entropy'"),
        ((network(), (IMAGES,), "mse"), "batches of inputs and a target"),
        ((lambda x, t: 3, TRAIN), "expected a Variable as the loss, got int"),
        ((lambda x, t: F.mean(x), TRAIN), "expected a model with parameters to train, got none"),
        ((network().requires_grad_(False), TRAIN, "cross_entropy"), "to train, got only frozen ones"),
        ((network(), IMAGES, LABELS, "cross_entropy"), r"one tuple: fit\(model, \(inputs, targets\), loss\)"),
        ((network(), TRAIN), "expected `loss`, or a model that takes all 2 arrays"),
        ((network(), (IMAGES, np.eye(10)[LABELS.ravel()]), "cross_entropy"), "argmax.axis=-1. of one-hot rows"),
        ((network(), TRAIN, "ce"), "did you mean 'cross_entropy'"),
    ],
)
def test_what_cannot_be_fitted_is_refused(arguments, error):
    with pytest.raises((TypeError, ValueError), match=error):
        nn.fit(*arguments, verbose=False)
    with pytest.raises(TypeError, match="expected `loss` with `metrics`"):
        nn.fit(network(), TRAIN, metrics="accuracy")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"optimizer": S.Adam()}, "got an argument 'optimizer'; did you mean 'solver'"),
        ({"epoch": 3}, "got an argument 'epoch'; did you mean 'epochs'"),
        ({"nothing": 3}, "got an argument 'nothing'$"),
        ({"patience": 3}, r"write callbacks=\[kinnor.training.EarlyStopping"),
        ({"solver": S.Adam}, "expected `solver` to be a solver such as .*, got Adam"),
        ({"solver": "adam"}, "expected `solver` to be a solver such as .*, got 'adam'"),
        ({"schedule": lambda step: 0.1}, "expected `schedule` to be one of .*, got function"),
        ({"callbacks": EarlyStopping("loss")}, "expected `callbacks` to be a list, got EarlyStopping"),
        ({"metrics": "acc"}, "did you mean 'accuracy'"),
        ({"accumulate": 0}, "expected `accumulate` to be at least 1, got 0"),
        ({"accumulate": 1.5}, "expected `accumulate` to be a whole number, got 1.5"),
        ({"epochs": -1}, "expected `epochs` to be at least 0, got -1"),
        ({"epochs": "3"}, "expected `epochs` to be a whole number, got '3'"),
        ({"callbacks": [EarlyStopping("val_loss")]}, "fit measures it if `validation` is given"),
        ({"callbacks": [EarlyStopping("lss")]}, "did you mean 'loss'"),
    ],
)
def test_arguments_of_other_libraries_are_explained(arguments, error):
    with pytest.raises((TypeError, ValueError, KeyError), match=error):
        nn.fit(network(), TRAIN, "cross_entropy", **{"verbose": False, "epochs": 1, **arguments})


def test_names_for_the_same_argument_lead_to_arguments():
    """The suggestions for other libraries' argument names are arguments and metrics of `fit`."""
    known = inspect.signature(nn.fit).parameters
    for names in (fitting.ELSEWHERE, losses.ELSEWHERE):
        assert not set(names) & {*known, *losses.METRICS}
    texts = [text for text in fitting.ELSEWHERE.values() if not text.startswith("write the call")]
    assert {text.removeprefix("write ").partition("=")[0] for text in texts} <= set(known)
    assert set(losses.ELSEWHERE.values()) <= set(losses.METRICS)


def test_a_checkpoint_that_is_read_is_told(tmp_path, capsys):
    """`fit` prints how many epochs the checkpoint has."""

    def told(epochs, **arguments):
        """Fits the network and returns the lines that `fit` printed."""
        nn.fit(network(), TRAIN, "cross_entropy", epochs=epochs, checkpoint=tmp_path / "run", **arguments)
        return capsys.readouterr().out.splitlines()

    assert len(told(1)) == 1
    lines = told(2)
    assert len(lines) == 2 and lines[0].endswith("run has 1 of 2 epochs, the run goes on from there")
    (line,) = told(2)
    assert line.endswith("run has 2 of 2 epochs, nothing is left to train")
    assert told(2, verbose=False) == []


def test_labels_and_targets_are_aligned():
    """Labels and targets with or without a last axis of one fit the output."""
    x, t = np.ones((8, 3), np.float32), np.zeros(8, np.float32)
    for loss in ("mse", "binary_cross_entropy"):
        nn.fit(L.Linear(3, 1), (x, t), loss, epochs=1, batch_size=4, verbose=False)
    words = np.zeros((8, 5), int)
    model = L.Sequential(L.Embedding(7, 4), L.Linear(4, 7))
    history = nn.fit(
        model,
        (words, words),
        "cross_entropy",
        metrics=["accuracy"],
        epochs=30,
        batch_size=8,
        solver=S.Adam(alpha=0.1),
        verbose=False,
    )
    assert history[-1]["accuracy"] == 1.0


def test_histories_are_tables():
    """A history prints as a table, and suggests names for misspelt series."""
    history = History([{"epoch": 1, "loss": 0.5}])
    assert repr(History()) == "no epochs" and History().series("loss") == []
    with pytest.raises(nn.ParameterError, match="expected one of epoch, loss, got 'los'; did you mean 'loss'"):
        history.series("los")
    with pytest.raises(TypeError, match=r"got 'loss'; series\('loss'\) returns its values"):
        history["loss"]
    assert "<table" in history._repr_html_() and "0.5" in history._repr_html_()


def test_bars_in_notebooks(monkeypatch):
    """In a notebook `fit` shows one progress bar, which it updates."""
    shown = []

    class Handle:
        """Records what a page shows."""

        def update(self, content):
            """Notes what a notebook would show in place of the last content."""
            shown.append(content)

    def display(content, display_id):
        """Notes what a notebook would show. Returns the handle that replaces it."""
        shown.append(content)
        return Handle()

    assert not is_notebook()
    page = SimpleNamespace(HTML=str, display=display)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=page))
    monkeypatch.setitem(sys.modules, "IPython.display", page)
    monkeypatch.setattr("kinnor.files.progress.SHORT", -1)
    assert is_notebook()
    with Progress(4, "<epoch>") as bar:
        bar.to(1)
        bar._bar._shown = 0
        bar.to(3, "epoch 2")
    assert "&lt;epoch&gt;: <progress" in shown[0] and 'value="1"' in shown[0]
    assert 'max="4" value="3"' in shown[1] and "epoch 2: " in shown[1] and "3/4 [" in shown[1]
    assert shown[-1] == ""


def test_models_with_another_number_of_inputs_are_refused():
    batches = [(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1)))]
    for model in (L.Linear(1, 2), lambda x: x):
        with pytest.raises(TypeError, match=r"shapes \(2, 1\), \(2, 1\), got too many positional arguments; columns"):
            nn.fit(model, batches, "mse")


def test_an_iterator_that_stops_is_gone_through_in_each_epoch():
    steps = []
    data, other = (
        data_iterator_simple(lambda i: (IMAGES[i], LABELS[i]), 70, 32, stop_exhausted=True) for _ in range(2)
    )
    with data, other:
        history = nn.fit(
            network(), data, "cross_entropy", epochs=3, validation=other, verbose=False,
            callbacks=[lambda run: steps.append(run.step)],
        )  # fmt: skip
    assert steps == [2, 4, 6] and len(history.series("val_loss")) == 3


@pytest.mark.parametrize("name", ["epoch", "loss", "learning_rate", "seconds", "val_loss"])
def test_values_do_not_take_the_names_of_others(name):
    """A metric named `loss` would replace the loss in the history."""
    with pytest.raises(nn.CallError, match=f"expected other names of values than fit's own, got '{name}'"):
        fitted(network(), metrics={name: "accuracy"})

    def model(x, t):
        """Returns the loss, and another value under a name of fit's."""
        y = PF.affine(x, 10)
        return F.mean(F.softmax_cross_entropy(y, F.reshape(t, (-1, 1)))), {name: F.mean(y)}

    with pytest.raises(nn.CallError, match="expected other names"):
        nn.fit(model, TRAIN, epochs=1, verbose=False)


def test_metrics_have_different_names():
    with pytest.raises(nn.CallError, match="got '<lambda>' twice; a dict gives them names"):
        fitted(network(), metrics=[lambda y, t: F.mean(y), lambda y, t: F.sum(y)])
