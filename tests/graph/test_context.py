"""Contexts: names, scopes by thread, the process default."""

import copy
import pickle
import threading

import pytest

import kinnor as nn
from kinnor import ext_utils


@pytest.fixture(autouse=True)
def default_context():
    """Restores the default context after the test."""
    before = nn.get_current_context()
    yield
    nn.set_default_context(before)


def test_attributes():
    """The fields of a context, their defaults, and its text."""
    context = nn.Context()
    assert (context.backend, context.array_class, context.device_id) == (["cpu:float"], "", "0")
    assert context["backend"] == ["cpu:float"]
    assert repr(context) == "Context(backend=['cpu:float'], array_class='', device_id='0')"
    context.backend, context.array_class, context.device_id = ["cpu:half", "cpu:float"], "CpuArray", "1"
    assert repr(context) == "Context(backend=['cpu:half', 'cpu:float'], array_class='CpuArray', device_id='1')"
    assert nn.Context("cpu:double").backend == ["cpu:double"]
    assert nn.Context(device_id=3).device_id == "3"
    for same in (copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
        assert repr(same) == repr(context)
    with pytest.raises(KeyError):
        context["compute"]


@pytest.mark.parametrize("backend", [3, [], [1], ["cpu:float", None]])
def test_bad_backends(backend):
    """A context refuses backends that are not lists of names."""
    with pytest.raises(TypeError, match="expected `backend` to be a list of names"):
        nn.Context(backend)


@pytest.mark.parametrize(
    ("backend", "compute_type"),
    [
        (["cpu:float"], "float"),
        (["cudnn:half", "cpu:half", "cpu:float"], "half"),
        (["cpu:double"], "double"),
        (["cpu:bfloat16", "cpu:float"], "bfloat16"),
    ],
)
def test_the_first_backend_that_exists_is_taken(backend, compute_type):
    assert nn.Context(backend).compute_type == compute_type


def test_scopes_nest_and_end():
    """`context_scope` nests, and restores the outer context also after an exception."""
    outer, inner = nn.Context(["cpu:half"]), nn.Context(["cpu:double"])
    default = nn.get_current_context()
    with nn.context_scope(outer) as given:
        assert given is outer
        assert nn.get_current_context() is outer
        with nn.context_scope(inner):
            assert nn.get_current_context() is inner
        with pytest.raises(ZeroDivisionError), nn.context_scope(inner):
            raise ZeroDivisionError
        assert nn.get_current_context() is outer
    assert nn.get_current_context() is default


def test_scopes_are_thread_local_and_the_default_is_global():
    default = nn.Context(["cpu:double"])
    nn.set_default_context(default)
    seen = []
    with nn.context_scope(nn.Context(["cpu:half"])):
        thread = threading.Thread(target=lambda: seen.append(nn.get_current_context()))
        thread.start()
        thread.join()
    assert seen == [default]


def test_refused_calls_change_nothing():
    """Unknown backends and other types are refused, and the context stays."""
    before = nn.get_current_context()
    unknown = nn.Context(["foo:float"])
    with pytest.raises(RuntimeError, match=r"expected one of the backends cpu:float.*got \['foo:float'\]"):
        nn.set_default_context(unknown)
    with pytest.raises(RuntimeError, match="expected one of the backends"), nn.context_scope(unknown):
        pass
    for bad in (3, None, "cpu"):
        with pytest.raises(TypeError, match="expected a Context"):
            nn.set_default_context(bad)
        with pytest.raises(TypeError, match="expected a Context"), nn.context_scope(bad):
            pass
    with nn.context_scope(nn.Context()), pytest.raises(RuntimeError, match="outside of any context_scope"):
        nn.set_default_context(nn.Context())
    assert nn.get_current_context() is before
    with nn.context_scope(nn.Context()) as context:
        with pytest.raises(RuntimeError, match="expected one of the backends"):
            context.backend = ["foo:float"]
        assert context.backend == ["cpu:float"]


def test_extensions():
    """The functions of the extension module for the CPU. Other extensions are refused."""
    assert ext_utils.list_extensions() == ["cpu"]
    cpu = ext_utils.import_extension_module("cpu")
    assert cpu.get_device_count() == len(cpu.get_devices()) == 1
    assert cpu.array_classes() == ["CpuCachedArray", "CpuArray", "CpuDlpackArray"]
    cpu.clear_memory_cache()
    cpu.synchronize(device_id="0")
    cpu.device_synchronize("0")
    with pytest.raises(ModuleNotFoundError, match="expected one of cpu, got 'cudnn'"):
        ext_utils.import_extension_module("cudnn")


@pytest.mark.parametrize(
    ("type_config", "backend"),
    [
        ("float", ["cpu:float"]),
        ("half", ["cpu:half", "cpu:float"]),
        ("double", ["cpu:double", "cpu:float"]),
        ("bfloat16", ["cpu:bfloat16", "cpu:float"]),
    ],
)
def test_contexts_of_extensions(type_config, backend):
    """`get_extension_context` returns a context by type name, and refuses unknown types."""
    context = ext_utils.get_extension_context("cpu", device_id="0", type_config=type_config)
    assert (context.backend, context.array_class, context.device_id) == (backend, "CpuCachedArray", "")
    assert context.compute_type == type_config
    with pytest.raises(ValueError, match="expected `type_config` to be one of float, half, double, bfloat16"):
        ext_utils.get_extension_context("cpu", type_config="int8")


@pytest.mark.parametrize(("type_config", "dtype"), [("float", "float32"), ("double", "float64"), ("half", "float16")])
def test_functions_compute_in_the_context_they_are_built_in(type_config, dtype):
    import kinnor.functions as F

    x = nn.Variable((3,))
    x.d = [1, 2, 3]
    with nn.context_scope(ext_utils.get_extension_context("cpu", type_config=type_config)):
        y = F.add_scalar(x, 1)
    y.forward()
    assert y.d.dtype == dtype
    assert y.d.tolist() == [2, 3, 4]


def test_other_threads_use_the_default_context():
    """`context_scope` does not apply to other threads; the default context does."""
    import kinnor.functions as F

    x = nn.Variable((1,))
    x.d = 1
    dtypes = []

    def build():
        """Builds and runs a function in the current context, and records the type of its result."""
        y = F.add_scalar(x, 1)
        y.forward()
        dtypes.append(y.d.dtype.name)

    def in_thread():
        """Calls `build` in another thread."""
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()

    with nn.context_scope(nn.Context(["cpu:double"])):
        in_thread()
        build()
    nn.set_default_context(nn.Context(["cpu:half"]))
    in_thread()
    assert dtypes == ["float32", "float64", "float16"]


def test_a_context_in_use_may_be_changed():
    import kinnor.functions as F

    x = nn.Variable((1,))
    context = nn.Context()
    with nn.context_scope(context):
        context.backend = ["cpu:double"]
        y = F.add_scalar(x, 1)
    y.forward()
    assert y.d.dtype == "float64"
