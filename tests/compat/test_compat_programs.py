"""Python features that public programs for NNabla rely on. Each test runs in its own process."""

import json
import textwrap
from pathlib import Path

import pytest
from test_compat import python, run

import kinnor


def test_the_version_is_the_api_version():
    """`nnabla.__version__` is NNabla's version; `__kinnor__` is Kinnor's. `__file__` says which package it is."""
    out = run("""
        import nnabla as nn
        from nnabla._version import __version__
        import nnabla_ext.cpu
        print(nn.__version__, nn.__kinnor__, __version__, nn.__build_number__ >= 0, nn.__file__)
    """)
    file = Path(kinnor.__file__).with_name("compat") / "nnabla/__init__.py"
    assert out == ["1.39.0", kinnor.__version__, "1.39.0", "True", str(file)]


def test_private_names_that_programs_import():
    """Private names of NNabla that published programs import exist."""
    out = run("""
        import nnabla as nn
        import nnabla.utils.communicator_util as util
        from nnabla import parameter
        from nnabla._init import array_classes
        from nnabla.utils.data_source_loader import _load_functions
        from nnabla.utils.load import _create_dataset
        print(parameter.current_no_grad, util._current_communicator, ".png" in _load_functions)
        with nn.no_grad():
            print(parameter.current_no_grad)
            with nn.no_grad(False):
                print(parameter.current_no_grad)
        with nn.parameter_scope("a") as scope:
            print(parameter.current_scope is scope, parameter.root_scope["a"] is scope)
        try:
            parameter.curent_no_grad
        except AttributeError as error:
            print("curent_no_grad" in str(error))
    """)
    assert out == ["False", "None", "True", "True", "False", "True", "True", "True"]


def test_private_attributes_that_programs_read(tmp_path):
    """Private attributes of NNabla's objects that published programs read exist."""
    (tmp_path / "data.csv").write_text("x,y\n" + "".join(f"{i},{i * i}\n" for i in range(4)))
    out = run(f"""
        import numpy as np
        from nnabla.utils.load import _create_dataset
        from nnabla.utils.data_source import DataSource
        from nnabla.utils.data_source_implements import CsvDataSource
        from nnabla.utils.data_iterator import data_iterator
        from nnabla.monitor import Monitor
        made = _create_dataset({str(tmp_path / "data.csv")!r}, 2, shuffle=False, no_image_normalization=True,
            cache_dir=None, overwrite_cache=False, create_cache_explicitly=False, prepare_data_iterator=True,
            dataset_index=313)
        it = made.data_iterator()
        with it.slice(rng=it._rng, slice_start=1, slice_end=3) as part:
            print(it._size, it._data_source.size, it._shuffle, it._variables[1], it._current_epoch, it._batch_size,
                part._size, *part.next()[0].ravel())
        print(it._data_source._on_memory)
        it.close()
        class Own(DataSource):
            def __init__(self, shuffle=True, rng=None):
                super().__init__(shuffle=shuffle, rng=rng)
                self._variables, self._size, self._images = ("x",), 3, [1, 2, 3]
                self.reset()
            def reset(self):
                self._indexes = self._rng.permutation(self._size) if self._shuffle else np.arange(self._size)
                super().reset()
            def _get_data(self, position):
                return (self._images[self._indexes[position]],)
        it = data_iterator(Own(), 1)
        it._data_source._on_memory = False
        print(sorted(int(it.next()[0][0]) for _ in range(3)), it._data_source._data_source._images)
        it.close()
        source = CsvDataSource({str(tmp_path / "data.csv")!r})
        print(source._filename[-8:], source._rows[1], source._order, source._original_source_uri == source._filename)
        print(Monitor({str(tmp_path)!r})._save_path == {str(tmp_path)!r})
    """)
    assert " ".join(out) == (
        "4 4 False y 0 2 2 1.0 2.0 True [1, 2, 3] [1, 2, 3] data.csv ['1', '1'] [0, 1, 2, 3] True True"
    )


def test_solvers_may_be_wrapped_in_classes_of_their_base():
    """A class derived from `Solver` may pass all calls on to another solver."""
    out = run("""
        import nnabla as nn, nnabla.solver, nnabla.solvers as S
        class Wrapped(nnabla.solver.Solver):
            def __init__(self, inner, bound):
                self.inner, self.bound = inner, bound
            def update(self):
                self.inner.update()
            def set_parameters(self, params, **options):
                self.inner.set_parameters(params, **options)
        class Empty(nnabla.solver.Solver):
            pass
        w = nn.Variable.from_numpy_array([1.0], need_grad=True)
        solver = Wrapped(S.Sgd(0.5), 3.0)
        solver.set_parameters({"w": w}, reset=False)
        w.g = 1
        solver.update()
        print(isinstance(solver, nnabla.solver.Solver), w.d[0], type(Empty("in", 2)).__name__)
        try:
            Empty("in", 2).update()
        except nn.GraphError as error:
            print("typed")
    """)
    assert out == ["True", "0.5", "Empty", "typed"]


def test_parametric_functions_call_replaced_functions():
    """A function replaced in `nnabla.functions` is used by parametric functions."""
    out = run("""
        import numpy as np, nnabla as nn, nnabla.functions as F, nnabla.parametric_functions as PF
        from unittest import mock
        x = nn.Variable.from_numpy_array(np.ones((3, 2, 4)))
        calls = []
        whole = F.dropout
        def dropout(x, *arguments, **named):
            calls.append(x.shape)
            return x
        with mock.patch("nnabla.functions.dropout", dropout):
            PF.transformer_encode(x, 4, 2, 8)
        n = len(calls)
        PF.transformer_encode(x, 4, 2, 8)
        import kinnor
        print(n > 0, len(calls) == n, F.dropout is whole, kinnor.functions.dropout is not whole)
    """)
    assert out == ["True"] * 4


def test_profilers_may_measure_in_another_way():
    """A class derived from `GraphProfiler` may override its private measuring methods."""
    out = run("""
        import nnabla as nn, nnabla.functions as F, nnabla.parametric_functions as PF
        from nnabla.utils.profiler import GraphProfiler
        class Mine(GraphProfiler):
            def _measure_execution_time(self, execution, *arguments):
                self.ext_module.synchronize(device_id=self.device_id)
                execution(*arguments)
                return 1.5, self.n_run
        class Other(GraphProfiler):
            def _time_profiling(self, f, target_process):
                self.result[target_process].append((f.name, sorted(self.name2val.values())))
        y = F.sum(F.relu(PF.affine(nn.Variable((2, 3)), 4)))
        for kind in (Mine, Other):
            profiler = kind(y, "0", "cpu", n_run=2)
            profiler.run()
            print(len(profiler.result["forward"]), len(profiler.result["backward"]), profiler.result["forward"][0][-1])
        print(Mine(y, "0", "cpu").n_run)
    """)
    assert " ".join(out) == "3 3 2 3 3 ['affine/W', 'affine/b'] 100"


CONSUMERS = {
    "tanh": "F.tanh(h)",
    "affine": "PF.affine(h, 2)",
    "mul_scalar": "h * 2.0",
    "mul_scalar of a sum": "(h + h) * 2.0",
    "chain": "F.sum(h * 2.0 + 1.0)",
    "reshape": "F.reshape(h, (4,))",
    "mean": "F.mean(h)",
    "convolution": "PF.convolution(F.reshape(h, (1, 1, 2, 2)), 1, (1, 1))",
    "batch_normalization": "PF.batch_normalization(h)",
    "dropout": "F.dropout(h, 0.5)",
    "concatenate": "F.concatenate(h, h)",
}
"""Expressions of `h`, a variable that the program holds. Running them must not change `h`."""
PRODUCERS = {"affine": "PF.affine(x, 4, name='p')", "add": "x + p", "sum": "F.sum(x * p, 0, keepdims=True) + p"}
"""Expressions that build `h` from the input `x` and the parameter `p`."""


@pytest.mark.parametrize("kind", ["float", "half", "double", "bfloat16"])
def test_what_a_program_holds_stays_if_it_needs_a_gradient(kind):
    """Values that a program holds are not cleared by clearing runs, for each kind of function."""
    run(f"""
        import gc, numpy as np, nnabla as nn, nnabla.functions as F, nnabla.parametric_functions as PF
        nn.set_default_context(nn.Context(["cpu:{kind}"]))
        x = nn.Variable.from_numpy_array(np.ones((1, 4)))
        for producer in {list(PRODUCERS.values())}:
            for consumer in {list(CONSUMERS.values())}:
                nn.clear_parameters()
                p = nn.Variable.from_numpy_array(np.arange(4.0).reshape(1, 4) + 1, need_grad=True)
                h = eval(producer)
                y = eval(consumer)
                h.forward()
                wanted = h.d.copy()
                for options in ({{"clear_no_need_grad": True}}, {{}}, {{"clear_no_need_grad": True}}):
                    for _ in range(3):
                        y.forward(**options)
                        assert np.array_equal(h.d, wanted), (producer, consumer, options)
                        y.backward()
                        assert np.array_equal(h.d, wanted), (producer, consumer, options)
                        nn.forward_all([y], **options)
                        assert np.array_equal(h.d, wanted), (producer, consumer, options)
        # What nobody holds is cleared, and can be read again once somebody does.
        t = x + p
        z = F.sum((t * 2.0) * 3.0)
        for _ in range(3):
            z.forward(clear_no_need_grad=True)
        inner = z.parent.inputs[0].parent.inputs[0]
        assert inner.data.clear_called
        for _ in range(2):
            z.forward(clear_no_need_grad=True)
            assert np.array_equal(inner.d, 2 * t.d)
        # A record shows what may be cleared: t, which no other graph reads.
        del inner, z
        from nnabla.testing import clear_called_flag_recorder as recorder
        recorder.activate_clear_called_flag_recorder()
        v = x + p
        z = F.sum(v * 2.0)
        z.forward(clear_no_need_grad=True)
        assert recorder.get_input_clear_called_flags()[1][0][0]
        recorder.deactivate_clear_called_flag_recorder()
        # What needs no gradient is cleared.
        u = x + 1.0
        z = F.sum(u * 2.0)
        z.forward(clear_no_need_grad=True)
        assert u.data.clear_called
    """)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_program_holds_stays_where_functions_run_as_one_pass(threads):
    """Values in the middle of fused functions stay if a program holds them."""
    run(f"""
        import kinnor, numpy as np, nnabla as nn, nnabla.functions as F
        kinnor.set_num_threads({threads})
        x = nn.Variable.from_numpy_array(np.ones((64, 4096)))
        p = nn.Variable.from_numpy_array(np.arange(4096.0), need_grad=True)
        steps = [x + p]
        for k in range(6):
            steps.append(steps[-1] * 2.0 if k % 2 else steps[-1] + 1.0)
        y = F.sum(steps[-1])
        wanted = [p.d + 1]
        for k in range(6):
            wanted.append(wanted[-1] * 2 if k % 2 else wanted[-1] + 1)
        held = steps[3]
        del steps
        for _ in range(4):
            y.forward(clear_no_need_grad=True)
            assert np.array_equal(held.d[5], wanted[3])
            y.backward(clear_buffer=True)
            assert p.g[7] == 64 * 8
            p.grad.zero()
        after = y.parent.inputs[0].parent.inputs[0]
        for _ in range(3):
            y.forward(clear_no_need_grad=True)
            assert np.array_equal(held.d[5], wanted[3])
            assert np.array_equal(after.d[5], wanted[5])
        del held
        for _ in range(3):
            y.forward(clear_no_need_grad=True)
            assert np.array_equal(after.d[5], wanted[5])
    """)


def test_what_has_the_ending_of_no_format_is_left_out_with_a_warning(tmp_path):
    """Files of unknown extensions are skipped with a warning, as in NNabla."""
    run(f"""
        import io, logging
        import nnabla as nn, nnabla.parametric_functions as PF, nnabla.solvers as S
        from nnabla.logger import logger
        from nnabla.utils.load import load
        told = io.StringIO()
        logger.addHandler(logging.StreamHandler(told))
        PF.affine(nn.Variable((2, 3)), 4)
        solver = S.Adam()
        solver.set_parameters(nn.get_parameters())
        assert nn.load_parameters("results.monitor") is None
        assert nn.parameter.load_parameters("no/such.file") is None
        assert nn.load_parameters(io.BytesIO(), extension=".bin") is None
        solver.load_states("no/such.states")
        assert list(load(["no/such.file"]).networks) == []
        omitted = [line.split()[0] for line in told.getvalue().splitlines() if line.endswith("is omitted.")]
        assert omitted[:2] + omitted[3:] == ["results.monitor", "no/such.file", "no/such.states", "no/such.file"]
        assert len(nn.get_parameters()) == 2
        for refuse in (
            lambda: nn.load_parameters("no/such.h5"),
            lambda: nn.load_parameters("ending"),
            lambda: nn.save_parameters({str(tmp_path / "x.monitor")!r}),
            lambda: solver.save_states({str(tmp_path / "x.monitor")!r}),
            lambda: solver.load_states("no/such.h5"),
        ):
            try:
                refuse()
            except (OSError, nn.ParameterError):
                continue
            raise AssertionError("it was taken")
    """)
    assert list(tmp_path.iterdir()) == []


ORDER_PROGRAM = """
    import json, logging, os
    import numpy as np
    from nnabla.logger import logger
    logger.setLevel(logging.ERROR)
    from nnabla.utils.data_iterator import *
    from nnabla.utils.data_source import DataSource
    from nnabla.utils.data_source_implements import SimpleDataSource
    folder = FOLDER
    with open(folder + "/data.csv", "w") as file:
        file.write("x\\n" + "".join(f"{i}\\n" for i in range(5)))
    os.mkdir(folder + "/cache")
    with open(folder + "/cache/cache_info.csv", "w") as file:
        file.write("x\\n")
    with open(folder + "/cache/cache_index.csv", "w") as index:
        for name, examples in (("a.npy", [0, 1, 2]), ("b.npy", [3, 4])):
            with open(folder + "/cache/" + name, "wb") as file:
                np.save(file, np.array(examples, np.float32).reshape(-1, 1))
            index.write(f"{name},{len(examples)}\\n")
    def load(i):
        return (np.array([i], np.float32),)
    class Own(DataSource):
        def __init__(self, rng):
            super().__init__(shuffle=True, rng=rng)
            self._size, self._variables = 5, ("x",)
            self.reset()
        def _get_data(self, position):
            return load(self._order[position])
        def reset(self):
            self._order = self._rng.permutation(self._size)
            super().reset()
    def parts(rng):
        return [SimpleDataSource(load, 2, False, rng), SimpleDataSource(lambda i: load(i + 2), 3, True, rng)]
    def sliced(batch, rng, **options):
        return data_iterator_simple(load, 5, batch, True, rng).slice(rng, num_of_slices=2, slice_pos=1, **options)
    def part(batches, rng, **options):
        return batches.slice(rng, num_of_slices=2, slice_pos=1, **options)
    makers = {
        "simple": lambda b, r: data_iterator_simple(load, 5, b, True, r),
        "simple, no thread": lambda b, r: data_iterator_simple(load, 5, b, True, r, use_thread=False),
        "simple, memory": lambda b, r: data_iterator_simple(load, 5, b, True, r, with_memory_cache=True),
        "simple, files": lambda b, r: data_iterator_simple(load, 5, b, True, r, with_file_cache=True),
        "simple, one epoch": lambda b, r: data_iterator_simple(load, 5, b, True, r, stop_exhausted=True),
        "csv": lambda b, r: data_iterator_csv_dataset(folder + "/data.csv", b, True, r),
        "csv, neither": lambda b, r: data_iterator_csv_dataset(
            folder + "/data.csv", b, True, r, with_memory_cache=False, with_file_cache=False),
        "csv, memory": lambda b, r: data_iterator_csv_dataset(folder + "/data.csv", b, True, r, with_file_cache=False),
        "csv, files": lambda b, r: data_iterator_csv_dataset(folder + "/data.csv", b, True, r, with_memory_cache=False),
        "cache": lambda b, r: data_iterator_cache(folder + "/cache", b, True, r),
        "cache, no memory": lambda b, r: data_iterator_cache(folder + "/cache", b, True, r, with_memory_cache=False),
        "concat": lambda b, r: data_iterator_concat_datasets(parts(r), b, True, r),
        "concat, no memory": lambda b, r: data_iterator_concat_datasets(parts(r), b, True, r, with_memory_cache=False),
        "own": lambda b, r: data_iterator(Own(r), b, r),
        "own, no memory": lambda b, r: data_iterator(Own(r), b, r, with_memory_cache=False),
        "own, files": lambda b, r: data_iterator(Own(r), b, r, with_file_cache=True),
        "slice": sliced,
        "slice, memory": lambda b, r: sliced(b, r, use_cache=True),
        "slice, equal": lambda b, r: sliced(b, r, drop_last=True),
        "slice of memory": lambda b, r: part(
            data_iterator_simple(load, 5, b, True, r, use_thread=False, with_memory_cache=True), r),
        "slice of files": lambda b, r: part(
            data_iterator_simple(load, 5, b, True, r, use_thread=False, with_file_cache=True), r),
        "slice of files, memory": lambda b, r: part(
            data_iterator_simple(load, 5, b, True, r, use_thread=False, with_file_cache=True), r, use_cache=True),
        "slice of csv": lambda b, r: part(
            data_iterator_csv_dataset(folder + "/data.csv", b, True, r, use_thread=False), r),
        "slice of cache": lambda b, r: part(data_iterator_cache(folder + "/cache", b, True, r, use_thread=False), r),
        "slice of concat": lambda b, r: part(
            data_iterator_concat_datasets(parts(r), b, True, r, use_thread=False, with_memory_cache=False), r),
        "slice of own": lambda b, r: part(data_iterator(Own(r), b, r, use_thread=False, with_memory_cache=False), r),
        "slice of a slice": lambda b, r: part(sliced(b, r), r),
    }
    found = {}
    for name, make in makers.items():
        for batch in (2, 7):
            for seed in (None, 5):
                batches, order = make(batch, None if seed is None else np.random.RandomState(seed)), ""
                try:
                    while len(order) < 18:
                        order += "".join(str(int(x)) for x in batches.next()[0].ravel())
                except StopIteration:
                    order += "."
                batches.close()
                found[f"{name}, {batch}, {seed}"] = order
    for threaded in (False, True):
        batches, order = data_iterator_simple(load, 5, 2, True, use_thread=threaded), ""
        for _ in range(4):
            batches._reset()
            order += "".join(str(int(x)) for _ in range(2) for x in batches.next()[0].ravel())
        batches.close()
        found[f"reset, {threaded}"] = order
    print(json.dumps(found))
"""

TURNS_PROGRAM = """
    import json, logging, random, time
    import numpy as np
    from nnabla.logger import logger
    logger.setLevel(logging.ERROR)
    from nnabla.utils.data_iterator import *
    with open(FOLDER + "/data.csv", "w") as file:
        file.write("x\\n" + "".join(f"{i}\\n" for i in range(7)))
    def load(i):
        time.sleep(random.random() / 500)
        return (np.array([i], np.float32),)
    makers = {
        "simple": lambda r: data_iterator_simple(load, 7, 2, True, r),
        "memory": lambda r: data_iterator_simple(load, 7, 2, True, r, with_memory_cache=True),
        "files": lambda r: data_iterator_simple(load, 7, 2, True, r, with_file_cache=True),
        "no thread": lambda r: data_iterator_simple(load, 7, 2, True, r, use_thread=False, with_file_cache=True),
        "csv": lambda r: data_iterator_csv_dataset(FOLDER + "/data.csv", 2, True, r, with_file_cache=False),
    }
    found = {}
    for name, make in makers.items():
        rng = np.random.RandomState(5)
        whole = make(rng)
        first = whole.slice(rng, num_of_slices=2, slice_pos=0)
        readers = [whole, first, whole.slice(rng, slice_start=4, slice_end=7), first.slice(rng, 9, 4)]
        readers.append(readers[2].slice(rng, 2, 1, use_cache=True))
        found[name] = " ".join(
            "".join(str(int(x)) for x in each.next()[0].ravel()) for _ in range(5) for each in readers)
        for each in reversed(readers):
            each.close()
    print(json.dumps(found))
"""

# Recorded with NNabla 1.39, whose threads were waited for after each batch: five batches of each iterator, in turn.
TURNS = {
    "simple": "62 62 05 66 53 05 62 53 66 53 05 62 36 66 35 05 62 51 66 53 05 62 41 66 35",
    "memory": "62 62 25 26 53 55 62 53 65 53 55 62 53 65 53 55 62 53 65 35 55 62 53 62 53",
    "files": "15 52 56 41 34 20 65 03 51 34 02 54 21 24 43 46 02 63 33 43 63 45 32 31 43",
    "no thread": "20 52 56 41 34 02 65 03 51 34 46 54 21 24 43 63 02 63 33 43 51 45 32 31 43",
    "csv": "62 62 21 26 13 11 62 13 61 13 11 62 13 61 13 11 62 13 61 13 11 62 13 62 13",
}


def test_slices_read_in_turn_repeat_one_order_of_nnabla(tmp_path):
    """An iterator, its slices and their slices yield the same examples in each run."""
    assert json.loads(" ".join(run(TURNS_PROGRAM.replace("FOLDER", repr(str(tmp_path)))))) == TURNS


# Recorded with NNabla 1.39: the numbers of the examples of the first batches, out of 5.
ORDERS = {
    # Batches of 2 and of 7, each without a generator and with RandomState(5).
    "simple": ("431204324014302130", "401234241014203121", "431204324013242143021", "401234041032413142031"),
    "simple, no thread": ("431204324014302130", "401234241014203121", "431204324013242143021", "401234041032413142031"),
    "simple, memory": ("431204312002314321", "401234012332014021", "431204312002314321043", "401234012332014021340"),
    "simple, files": ("023142134010423321", "320142104313420021", "023142134010423321043", "320142104313420021340"),
    "simple, one epoch": ("4312.", "4012.", ".", "."),
    "csv": ("431204312002314321", "401234012332014021", "431204312002314321043", "401234012332014021340"),
    "csv, neither": ("132401430243012042", "324101420302134214", "132401430243012042310", "324101420302134214304"),
    "csv, memory": ("431204312002314321", "401234012332014021", "431204312002314321043", "401234012332014021340"),
    "csv, files": ("023142134010423321", "320142104313420021", "023142134010423321043", "320142104313420021340"),
    "cache": ("430214302112304320", "012340123443120132", "430214302112304320143", "012340123443120132401"),
    "cache, no memory": ("431024312034210021", "432104301243210340", "431024312034210021430", "432104301243210340212"),
    "concat": ("241302413003412431", "324103241001243214", "241302413003412431024", "324103241001243214032"),
    "concat, no memory": ("143201240324013023", "142030213421430402", "143201240324013023410", "142030213421430402130"),
    "own": ("431204312002314321", "401234012303142103", "431204312002314321043", "401234012303142103244"),
    "own, no memory": ("132401430243012042", "324101420302134214", "132401430243012042310", "324101420302134214304"),
    "own, files": ("431204312002314321", "401234012341023420", "431204312002314321043", "401234012341023420310"),
    "slice": ("120140302312231214", "123110203234430413", "120120140240242302302", "123123110410413203203"),
    "slice, memory": ("120120201102201210", "123123213312321123", "120120201102201210210", "123123123231321321132"),
    "slice, equal": ("122430012331342142", "124120134321143102", "121212142424243030303", "121212114141412020202"),
    "slice of memory": ("120020201001210120", "123323231331213123", "120020201001210120022", "123323231331213123322"),
    "slice of files": ("340423104102042423", "043420134132342420", "340423104102042423403", "043420134132342420430"),
    "slice of files, memory": (
        "314314143341143134",
        "014014401014410041",
        "314314143341143134134",
        "014014401014410041410",
    ),
    "slice of csv": ("120014201041110120", "123314231341113123", "120014201041110120012", "123314231341113123312"),
    "slice of cache": ("021102210120001021", "234410342402124234", "021102210120001021102", "234410342402124234413"),
    "slice of concat": ("403013341412420312", "134430213142312021", "403013341412420312231", "134430213142312021302"),
    "slice of own": ("302012231314340214", "203134430213142312", "302012231314340214421", "203134430213142312021"),
    "slice of a slice": ("202020202020202020", "232323232323232323", "404040404040404040404", "101010101010101010101"),
}
RESETS = {"reset, False": "4312431243124312", "reset, True": "4343124312431243"}
"""Two batches of 2 after each of four calls of `_reset`, by whether batches are read ahead."""


def test_the_order_of_examples_equals_nnablas(tmp_path):
    """Shuffled data iterators yield examples in the order of NNabla 1.39."""
    found = json.loads(" ".join(run(ORDER_PROGRAM.replace("FOLDER", repr(str(tmp_path))))))
    keys = [f"{batch}, {seed}" for batch in (2, 7) for seed in (None, 5)]
    wanted = {
        f"{name}, {key}": order for name, orders in ORDERS.items() for key, order in zip(keys, orders, strict=True)
    }
    assert found == {**wanted, **RESETS}


RESUME_PROGRAM = """
    import logging
    import numpy as np
    from nnabla.logger import logger
    logger.setLevel(logging.ERROR)
    from nnabla.utils.data_iterator import data_iterator, data_iterator_csv_dataset, data_iterator_simple
    from nnabla.utils.data_source import DataSource
    path = FOLDER + "/data.csv"
    class Own(DataSource):
        def __init__(self):
            super().__init__(shuffle=True)
            self._size, self._variables = 5, ("x",)
            self.reset()
        def _get_data(self, position):
            return (np.array(self._order[position]),)
        def reset(self):
            self._order = self._rng.permutation(self._size)
            super().reset()
    def simple(batch, **options):
        return data_iterator_simple(lambda i: (np.array(i),), 5, batch, True, **options)
    makers = {
        "own": lambda batch, memory: data_iterator(Own(), batch, with_memory_cache=memory),
        "simple": lambda batch, memory: simple(batch, with_memory_cache=memory),
        "slice": lambda batch, memory: simple(batch, with_memory_cache=memory, use_thread=False).slice(None, 2, 1),
        "csv": lambda batch, memory: data_iterator_csv_dataset(path, batch, True, with_memory_cache=memory),
    }
    for name, make in makers.items():
        for batch in 2, 7:
            for memory in False, True:
                for n_read in 0, 1, 3, 50:
                    with make(batch, memory) as first, make(batch, memory) as second:
                        for _ in range(n_read):
                            first.next()
                        second.set_state(first.state())
                        for _ in range(9):
                            if first.next()[0].tolist() != second.next()[0].tolist():
                                print(name, batch, memory, n_read)
    print("done")
"""


def test_iterators_resume_in_the_same_order(tmp_path):
    """An iterator continues at another one's state with the same examples, also if a cache in memory holds them."""
    (tmp_path / "data.csv").write_text("x\n" + "".join(f"{i}\n" for i in range(5)))
    assert run(RESUME_PROGRAM.replace("FOLDER", repr(str(tmp_path)))) == ["done"]


def test_iterators_that_share_a_generator_do_not_go_by_chance():
    """The orders of two iterators with one generator do not depend on the timing of threads."""
    out = run("""
        import logging, random, time
        import numpy as np
        from nnabla.logger import logger
        from nnabla.utils.data_iterator import data_iterator_simple
        logger.setLevel(logging.ERROR)
        def load(i):
            time.sleep(random.random() / 5000)
            return (np.array([i]),)
        def orders(batch):
            rng = np.random.RandomState(0)
            both = [data_iterator_simple(load, 5, batch, True, rng) for _ in range(2)]
            found = [it.next()[0].ravel().tolist() for _ in range(8) for it in both]
            for it in both:
                it.close()
            return found
        print(all(orders(batch) == orders(batch) for batch in (1, 2, 5, 7, 20) for _ in range(6)))
    """)
    assert out == ["True"]


WORKERS = """
    import sys, multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    {first}
    import nnabla as nn
    import nnabla.functions as F

    def work(n):
        import nnabla.solvers
        x = nn.Variable.from_numpy_array([float(n)])
        y = F.sum(x * 2)
        y.forward()
        return float(y.d), nn.__version__

    if __name__ == "__main__":
        for method in ("spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                print(*pool.map(work, [1, 2]))
"""


@pytest.mark.parametrize("first", ["", "import kinnor.compat.nnabla"])
def test_worker_processes_find_the_names(tmp_path, first):
    """Processes that `multiprocessing` starts can import `nnabla`."""
    script = tmp_path / "workers.py"
    script.write_text(textwrap.dedent(WORKERS).replace("{first}", first))
    done = python(*([] if first else ["-m", "kinnor.compat.nnabla"]), str(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2.0, '1.39.0') (4.0, '1.39.0')\n" * 2


def test_programs_that_a_program_starts_find_the_names(tmp_path):
    """Python programs started as subprocesses can import `nnabla`."""
    script = tmp_path / "starts.py"
    script.write_text(
        "import subprocess, sys\n"
        "text = 'import nnabla_ext.cpu, nnabla; print(nnabla.__version__, hasattr(nnabla, \"__kinnor__\"))'\n"
        "print(subprocess.run([sys.executable, '-c', text], capture_output=True, text=True, check=True).stdout)\n"
    )
    done = python("-m", "kinnor.compat.nnabla", str(script))
    assert done.stdout.split() == ["1.39.0", "True"], done.stderr


def test_text_and_modules_run_as_programs(tmp_path):
    """The options `-c` and `-m` run text and modules, as Python's own options do."""
    text = "import sys, nnabla as nn; a = 1\ndef f(): return a\nprint(f(), nn.__version__, *sys.argv, __name__)"
    done = python("-m", "kinnor.compat.nnabla", "-c", text, "x", "-y")
    assert done.stdout.split() == ["1", "1.39.0", "-c", "x", "-y", "__main__"], done.stderr
    (tmp_path / "mine.py").write_text("import sys, nnabla\nprint(nnabla.__version__, *sys.argv[1:])")
    done = python("-m", "kinnor.compat.nnabla", "-m", "mine", "-z", cwd=tmp_path)
    assert done.stdout.split() == ["1.39.0", "-z"], done.stderr
    done = python("-m", "kinnor.compat.nnabla", "-c", "raise ValueError('mine')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: mine\n")
    for option in ("-m", "-c"):
        done = python("-m", "kinnor.compat.nnabla", option)
        assert done.returncode == 1
        assert "expected" in done.stderr


def test_names_of_arrays_are_tuples(tmp_path):
    """Programs add them to tuples of their own."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    out = run(f"""
        import numpy as np
        from nnabla.utils.data_iterator import data_iterator_csv_dataset, data_iterator_simple
        for arguments in ({{}}, {{"with_file_cache": True}}, {{"with_memory_cache": True}}):
            for batches in (
                data_iterator_simple(lambda i: (np.zeros(1),), 3, 2, **arguments),
                data_iterator_csv_dataset({str(tmp_path / "a.csv")!r}, 2, **arguments),
            ):
                print(type(batches.variables).__name__)
                batches.close()
    """)
    assert out == ["tuple"] * 6
