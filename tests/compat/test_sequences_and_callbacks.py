"""Padded and packed sequences, progress, signatures and callbacks with NNabla's names."""

import argparse
import inspect

import numpy as np
import pytest

import kinnor as nn
from kinnor.contrib.context import extension_context
from kinnor.utils import callback, rnn
from kinnor.utils.progress import configure_progress, progress
from kinnor.utils.py23_compatible import getargspec
from kinnor.utils.signature_utils import SignatureEx


def variables(*lists):
    """Returns a variable for each list of numbers."""
    return [nn.Variable.from_numpy_array(np.array(each, np.float32)) for each in lists]


@pytest.fixture
def eager():
    """Runs the test in eager mode."""
    with nn.auto_forward():
        yield


def test_sequences_are_sorted_packed_and_unpacked(eager):
    """`pack_sequence` and `pad_packed_sequence` give NNabla's numbers."""
    sequences = variables([3, 3], [2, 2, 2], [2, 2, 2], [1, 1, 1, 1], [3, 3])
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    # The output of NNabla 1.39.
    assert packed.data.d.tolist() == [1, 2, 2, 3, 3, 1, 2, 2, 3, 3, 1, 2, 2, 1]
    assert packed.batch_sizes.d.tolist() == [5, 5, 3, 1]
    assert packed.sorted_indices.d.tolist() == [3, 1, 2, 0, 4]
    assert packed.unsorted_indices.d.tolist() == [3, 1, 2, 0, 4]
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, total_length=6)
    assert padded.d[0].tolist() == [3, 3, 0, 0, 0, 0]
    assert padded.d[3].tolist() == [1, 1, 1, 1, 0, 0]
    assert lengths.d.tolist() == [2, 3, 3, 4, 2]
    with pytest.raises(ValueError, match="total_length"):
        rnn.pad_packed_sequence(packed, total_length=2)
    with pytest.raises(ValueError, match="pack_padded_sequence"):
        rnn.pack_sequence(sequences)
    assert "sorted_indices=<Variable" in repr(packed)


def test_orders_that_are_not_their_own_inverse(eager):
    """Packing unsorted sequences and padding them again restores their order."""
    rng = np.random.RandomState(0)
    values = [rng.randn(n, 3).astype(np.float32) for n in (2, 4, 3, 1)]
    sequences = variables(*values)
    for batch_first in (False, True):
        packed = rnn.pack_sequence(sequences, batch_first, enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(packed, batch_first)
        for i, value in enumerate(values):
            row = padded.d[i] if batch_first else padded.d[:, i]
            np.testing.assert_array_equal(row[: len(value)], value)
            assert not row[len(value) :].any()
        assert lengths.d.tolist() == [2, 4, 3, 1]
        again = rnn.pad_sequence(sequences, batch_first)
        np.testing.assert_array_equal(again.d, padded.d)
        other = rnn.pack_padded_sequence(again, lengths, batch_first, enforce_sorted=False)
        np.testing.assert_array_equal(other.data.d, packed.data.d)


def test_gradients_go_through_packed_sequences():
    """Gradients of padded values reach the original sequences."""
    sequences = variables(np.ones((2, 2)), np.ones((3, 2)))
    for x in sequences:
        x.need_grad = True
    with nn.auto_forward():
        packed = rnn.pack_sequence(sequences, enforce_sorted=False)
        padded, _ = rnn.pad_packed_sequence(packed)
        total = nn.functions.sum(
            padded * nn.Variable.from_numpy_array(np.arange(6.0, dtype=np.float32).reshape(3, 2, 1))
        )
    for x in sequences:
        x.grad.zero()
    total.backward()
    assert sequences[0].g.tolist() == [[0, 0], [2, 2]]
    assert sequences[1].g.tolist() == [[1, 1], [3, 3], [5, 5]]


def test_sequences_refused():
    """Empty lists of sequences and empty packed sequences are refused."""
    with pytest.raises(nn.ArgumentError, match="pad_sequence"):
        rnn.pad_sequence([])
    with pytest.raises(nn.ArgumentError, match="got none"):
        rnn.pad_packed_sequence(rnn.PackedSequence())
    assert rnn.pad_sequence([nn.Variable((2,)), nn.Variable((3,))]).shape == (3, 2)


def test_progress_is_in_a_file(tmp_path):
    """`progress` writes the state of a run to a file, and calls a callback."""
    told = []
    configure_progress(tmp_path / "p.txt", lambda *args: told.append(args))
    progress("Training", 0.25)
    assert (tmp_path / "p.txt").read_text() == "Training (25.00%)"
    progress("Evaluation", 1.5)
    assert (tmp_path / "p.txt").read_text() == "Evaluation (100.00%)"
    progress(None)
    assert (tmp_path / "p.txt").read_text() == ""
    assert told == [(None, 0.0), ("Training", 0.25), ("Evaluation", 1.5), (None, 0.0)]
    configure_progress(None)
    progress("nowhere")
    assert len(told) == 4


def test_signatures():
    """Texts of a signature are as in NNabla."""

    def f(a, b, c=3, *args, d=4, **kw) -> int: ...

    signature = SignatureEx.from_callable(f)
    # The output of NNabla 1.39.
    assert signature.format_argument_signature() == "a, b, c=3, *args, d=4, **kw"
    assert signature.format_return_annotation() == " -> int"
    assert signature.format_caller_argument_signature() == "a, b, c, *args, d=d, **kw"
    assert signature.has_return_annotation
    assert str(signature.drop_arg("b")) == "(a, c=3, *args, d=4, **kw) -> int"
    assert str(signature.add_arg("e", default=3)) == "(a, b, c=3, e=3, *args, d=4, **kw) -> int"
    assert "q" in signature.add_arg("q", inspect.Parameter.KEYWORD_ONLY).parameters
    assert signature.drop_arg("zz") == signature
    with pytest.raises(KeyError, match="zz"):
        signature.drop_arg("zz", raise_if_not_found=True)
    for name in ("e", "a"):
        with pytest.raises(ValueError, match=r"default|duplicate"):
            signature.add_arg(name)
    assert getargspec(f) == (["a", "b", "c"], "args", "kw", (3,))


def test_console_callbacks_do_nothing():
    """The callbacks of NNabla's console exist, and have no effect."""
    args = argparse.Namespace()
    assert callback.get_timelimit(args) == -1
    assert callback.check_training_time(args, None, None, 3, 9)
    assert callback.get_best_from_status(args) == (None, None)
    silent = [
        callback.alternative_cli,
        callback.add_train_command_arg,
        callback.update_progress,
        callback.update_status,
    ]
    assert not any(f(args) for f in (*silent, callback.update_time_train, callback.get_load_image_func))
    assert not any(
        f() for f in (callback.save_train_snapshot, callback.update_forward_time, callback.get_callback_version)
    )
    assert callback.result_base("a", "b", "c") is None
    assert callback.process_evaluation_result("a", "b") is None


def test_the_old_name_of_a_context():
    """`extension_context` is accepted as the old name of `get_extension_context`."""
    assert "half" in str(extension_context("cpu", type_config="half")).lower()
    with pytest.raises(ModuleNotFoundError, match="cudnn"):
        extension_context("cudnn")
