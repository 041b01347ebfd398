"""NNabla's names for Kinnor: imported, around a script, and as a pytest plug-in. Each test runs in its own process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import kinnor

PACKAGES = str(Path(kinnor.__file__).parents[1])
"""The folder with the package, for `PYTHONPATH` of other processes."""


def python(*arguments, cwd=None):
    """Runs Python with the compatibility package on its path."""
    paths = [PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd, timeout=120, check=False
    )


def run(program):
    """Runs a program after importing NNabla's names. Returns the words that it prints."""
    done = python("-c", "import kinnor.compat.nnabla\n" + textwrap.dedent(program))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_program_written_for_nnabla_trains():
    """A program that imports `nnabla` and its submodules runs and lowers its loss."""
    out = run("""
        import numpy as np
        import nnabla as nn
        import nnabla.functions as F
        import nnabla.initializer as I
        import nnabla.parametric_functions as PF
        import nnabla.solvers as S
        from nnabla.ext_utils import get_extension_context
        from nnabla.logger import logger
        from nnabla.monitor import Monitor, MonitorSeries
        from nnabla.parameter import get_parameter_or_create
        from nnabla.utils.data_iterator import data_iterator_simple
        import nnabla.utils.learning_rate_scheduler as LRS

        nn.set_default_context(get_extension_context("cpu"))
        rng = np.random.RandomState(0)
        x, t = nn.Variable((16, 4)), nn.Variable((16, 1))
        y = PF.affine(F.relu(PF.affine(x, 8, name="a")), 3, w_init=I.NormalInitializer(0.1), name="b")
        loss = F.mean(F.softmax_cross_entropy(y, t))
        solver = S.Adam(0.05)
        solver.set_parameters(nn.get_parameters())
        x.d = rng.randn(*x.shape)
        t.d = x.d.argmax(1).reshape(t.shape) % 3
        seen = []
        for _ in range(30):
            loss.forward(clear_no_need_grad=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            solver.update()
            seen.append(float(loss.d))
        print(seen[-1] < seen[0] / 4, *nn.get_parameters())
    """)
    assert out == ["True", "a/affine/W", "a/affine/b", "b/affine/W", "b/affine/b"]


def test_nnabla_names_are_the_same_objects():
    """Classes and modules under `nnabla` are Kinnor's objects, not copies."""
    out = run("""
        import kinnor, nnabla as nn, nnabla_ext.cpu, nnabla.variable, nnabla.random, nnabla.utils.data_source
        print(nn.Variable is kinnor.Variable, nnabla.variable.Variable is kinnor.Variable)
        print(nnabla.random is kinnor.random, callable(nn.grad), callable(nn.auto_forward), nn.logger.name)
        print(nnabla_ext.cpu.context().backend[0])
    """)
    assert out == ["True", "True", "True", "True", "True", "kinnor", "cpu:float"]


def test_statistics_of_a_fused_convolution_may_be_computed():
    """Under NNabla's names, running statistics may be outputs of functions."""
    out = run("""
        import numpy as np
        import nnabla as nn
        import nnabla.functions as F

        rng = np.random.RandomState(0)
        shapes = ((2, 4, 6), (6, 4, 3), (1, 6, 1), (1, 6, 1))
        x, w, beta, gamma = (nn.Variable.from_numpy_array(rng.randn(*shape)) for shape in shapes)
        mean, variance = (nn.Variable.from_numpy_array(np.ones((1, 6, 1))) for _ in range(2))
        y = F.fused_convolution(x, w, None, beta, gamma, F.identity(mean), F.identity(variance), nonlinearity=None)
        z = F.batch_normalization(F.convolution(x, w), beta, gamma, mean, variance)
        nn.forward_all([y, z])
        print(y.parent.name, np.array_equal(y.d, z.d))
    """)
    assert out == ["FusedConvolution", "True"]


def test_the_base_of_patch_correlation_takes_channels_last():
    out = run("""
        import numpy as np, nnabla as nn, nnabla.functions as F
        from nnabla.function_bases import relu

        a, b = (nn.Variable.from_numpy_array(np.random.RandomState(i).randn(1, 4, 5, 2)) for i in range(2))
        y = nn.function_bases.patch_correlation(a, b, patch=(2, 1), shift=(1, 0), padding=(0, 0, 1, 0))
        first = (F.transpose(x, (0, 3, 1, 2)) for x in (a, b))
        z = F.transpose(F.patch_correlation(*first, patch=(2, 1), shift=(1, 0), padding=(0, 0, 1, 0)), (0, 3, 4, 1, 2))
        y.forward(), z.forward()
        print(y.parent.name, y.shape == (1, 3, 6, 3, 1), np.array_equal(y.d, z.d), relu is F.relu)
    """)
    assert out == ["PatchCorrelation", "True", "True", "True"]


def test_refused_arguments_are_assertion_errors_in_nnabla():
    out = run("""
        import numpy as np, nnabla as nn, nnabla.functions as F
        from nnabla.parameter import get_parameter_or_create

        def name(call):
            try:
                call()
            except Exception as error:
                return type(error).__name__

        x = nn.Variable((2, 3))
        print(name(lambda: F.relu(np.zeros(3))), name(lambda: F.concatenate(x, None)))
        print(name(lambda: F.relu(x, unknown=1)), name(lambda: get_parameter_or_create("w")))
        with nn.context_scope(nn.Context()):
            print(name(lambda: nn.set_default_context(nn.Context())))
    """)
    assert out == ["AssertionError", "AssertionError", "CallError", "AssertionError", "AssertionError"]


def test_runs_go_depth_first_only_under_nnablas_name():
    program = """
        import nnabla as nn, nnabla.functions as F
        x = nn.Variable((1,))
        short, long = F.exp(x), F.sin(F.cos(x))
        ran = []
        F.add2(long, short).forward(function_pre_hook=lambda f: ran.append(f.name))
        print(*ran)
    """
    assert run(program) == ["Cos", "Sin", "Exp", "Add2"]
    native = textwrap.dedent(program).replace("nnabla", "kinnor")
    assert python("-c", native).stdout.split() == ["Cos", "Exp", "Sin", "Add2"]


def test_gradient_rules_by_name():
    """NNabla's registry of gradient functions and its gradient classes compute gradients."""
    out = run("""
        import nnabla as nn, nnabla.functions as F
        from nnabla.backward_function.affine import AffineFilterGrad
        from nnabla.backward_functions import registry
        x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        y, g = F.sin(x), nn.Variable((2,))
        g.d = 1
        gx = registry["Sin"]([g], [x], [x.shape], [y], [y.shape])
        gx.forward()
        print(*[round(float(v), 4) for v in gx.d])
        a, gy = nn.Variable.from_numpy_array([[1.0, 2.0]]), nn.Variable.from_numpy_array([[10.0]])
        rule = AffineFilterGrad(nn.Context(), 1)
        rule.wshape = (2, 1)
        w = rule(gy, a)
        w.forward()
        print(*w.d.ravel())
    """)
    assert out == ["0.5403", "-0.4161", "10.0", "20.0"]


def test_a_function_of_ones_own_gets_the_current_context():
    out = run("""
        import inspect, numpy as np, nnabla as nn, nnabla.functions as F
        from nnabla.function_bases import function_api

        @F.function_api
        def scaled(ctx, x, scale=2.0, *, shift=0.0):
            "Doc"
            made.append(ctx.device_id)
            return x * scale + shift

        made = []
        x = nn.Variable.from_numpy_array(np.float32([1, 2]))
        with nn.context_scope(nn.Context(["cpu:float"], "CpuCachedArray", "5")):
            y = scaled(x, shift=1.0)
        y.forward()
        print(*y.d, *made, *inspect.signature(scaled).parameters, scaled.__doc__, scaled.__name__)
        print(function_api is F.function_api, "ctx" in inspect.signature(scaled.__function_api_base__).parameters)
        for wrong in (lambda x: x, lambda: None):
            try:
                F.function_api(wrong)
            except TypeError:
                print("TypeError")
    """)
    assert out[:8] == ["3.0", "5.0", "5", "x", "scale", "shift", "Doc", "scaled"]
    assert out[8:] == ["True", "True", "TypeError", "TypeError"]


def test_a_script_gets_its_arguments(tmp_path):
    """`python -m kinnor.compat.nnabla` passes arguments, folder and exit status as Python does."""
    (tmp_path / "beside.py").write_text("import nnabla\nname = nnabla.Variable.__name__\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, beside\nprint(__name__, sys.argv[1:], beside.name)\nsys.exit(3)\n")
    done = python("-m", "kinnor.compat.nnabla", str(script), "--epochs", "2", cwd="/")
    assert done.stdout.strip() == "__main__ ['--epochs', '2'] Variable"
    assert done.returncode == 3
    done = python("-m", "kinnor.compat.nnabla", "-m", "beside", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage" in python("-m", "kinnor.compat.nnabla").stderr


def test_a_plugin_of_pytest(tmp_path):
    """With `-p kinnor.compat.nnabla`, tests of other programs import the name `nnabla`."""
    (tmp_path / "test_it.py").write_text(
        "import nnabla as nn\n\n\ndef test_it():\n    assert nn.Variable((2, 3)).size == 6\n"
    )
    done = python("-m", "pytest", "-p", "kinnor.compat.nnabla", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_nnabla_itself_is_not_replaced():
    """Kinnor refuses to take the name `nnabla` if it has been imported already."""
    done = python(
        "-c", "import sys, types\nsys.modules['nnabla'] = types.ModuleType('nnabla')\nimport kinnor.compat.nnabla"
    )
    assert "expected to be imported before nnabla" in done.stderr


def test_files_of_nnablas_format_are_written_and_read():
    out = run("""
        import io
        import nnabla as nn, nnabla.functions as F
        from nnabla.utils import nnabla_pb2
        from nnabla.utils.converter import get_category_info
        from nnabla.utils.nnp_graph import NnpLoader
        from nnabla.utils.save import save
        x = nn.ProtoVariable((2, 3), name="x")
        net = {"name": "net", "batch_size": 2, "outputs": {"y": F.relu(x)}, "names": {"x": x}}
        file = io.BytesIO()
        save(file, {"networks": [net]})
        print(NnpLoader(file, extension=".nnp").get_network("net").outputs["y"].shape == (2, 3))
        facts = get_category_info()["Function"]["LeakyReLU"]
        print(facts["snake_name"], *facts["inputs"], *facts["arguments"])
    """)
    assert out == ["True", "leaky_relu", "x", "alpha", "inplace"]


def test_files_are_closed_at_the_end_of_a_block_even_after_errors(tmp_path):
    run(f"""
        import io, os, zipfile
        from nnabla.utils.get_file_handle import get_file_handle_load, get_file_handle_save
        os.chdir({str(tmp_path)!r})
        for ext, content in ((".nntxt", "a"), (".prototxt", "b"), (".protobuf", b"c")):
            path = "f" + ext
            for opened in (get_file_handle_save(path, ext), get_file_handle_load(None, path, ext)):
                try:
                    with opened as file:
                        file.write(content) if file.writable() else None
                        raise KeyError
                except KeyError:
                    assert file.closed
            with get_file_handle_load(None, "f" + ext, ext) as file:
                assert file.read() == content
        with get_file_handle_save("f.h5", ".h5") as file:
            file["x"] = 3
        with get_file_handle_load(None, "f.h5", ".h5") as file, open("f.h5", "rb") as raw:
            assert file["x"][()] == 3
            held = io.BytesIO(raw.read())
        with get_file_handle_load(None, held, ".h5") as file:
            assert file["x"][()] == 3
        archive = io.BytesIO()
        with get_file_handle_save(archive, ".nnp") as nnp:
            nnp.write("f.h5")
            nnp.writestr("net.nntxt", "text")
        assert archive.tell() == 0
        with get_file_handle_load(None, archive, ".nnp") as nnp:
            with get_file_handle_load(nnp, "f.h5", ".h5") as file:
                assert file["x"][()] == 3
            with get_file_handle_load(nnp, "net.nntxt", ".nntxt") as member:
                assert member.read() == b"text"
            assert member.closed
        text = io.StringIO()
        with get_file_handle_save(text, ".nntxt") as file:
            file.write("kept")
        assert (file is text, text.closed, text.read()) == (True, False, "kept")
        for refused in (lambda: get_file_handle_save("f.x", ".x"), lambda: get_file_handle_load(None, "f.x", ".x")):
            try:
                with refused():
                    raise AssertionError
            except ValueError as error:
                assert "expected `ext` to be .nnp, .h5" in str(error)
    """)


def test_functions_of_the_command_line_module(tmp_path):
    """The helpers of `nnabla.utils.cli` parse numbers and run commands as NNabla's do."""
    out = run("""
        import sys
        import numpy as np
        import nnabla as nn
        from nnabla.utils.cli.cli import main
        from nnabla.utils.cli.utility import compute_full_path, is_float, let_data_to_variable, str_to_num
        assert [is_float(s) for s in ("1", "1e3", "x", "nan", "", " 2 ")] == [True, True, False, True, False, True]
        numbers = {"12345678": 12345678, "2e10": 1024, "1234K": 1234000, "1k": 1024, "1.5M": 1500000, "3g": 3 << 30}
        numbers |= {"0": -1, "x": -1, "-4": -1, "1.5": -1, "1e": -1, "2.5e3": 15, "10P": 10**16, "1p": 1 << 50}
        assert {s: str_to_num(s) for s in numbers} == numbers
        paths = [("/a", "b.csv"), ("/a", "./b/./c"), ("/a", "/z/y"), ("/a\\q", "b\\c"), (".", "x")]
        assert [compute_full_path(*p) for p in paths] == ["/a/b.csv", "/a/b/c", "/z/y", "/a/q/b/c", "./x"]
        for dtype in (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_):
            x = nn.Variable((2, 3), need_grad=True)
            let_data_to_variable(x, np.ones((1, 3), dtype), ctx=nn.Context(["cpu:float"]))
            assert (x.data.dtype, x.need_grad, x.d.tolist()) == (dtype, False, [[1] * 3] * 2)
        x = nn.Variable((2, 3), need_grad=True)
        x.d = np.full((2, 3), 5, np.float32)
        try:
            let_data_to_variable(x, np.ones((3, 2)), data_name="d", variable_name="v")
        except ValueError as error:
            assert 'data "d"' in str(error) and 'variable "v"' in str(error), error
        assert (x.need_grad, x.data.dtype, x.d[0, 0]) == (True, np.float32, 5)
        sys.argv = ["nnabla_cli", "version"]
        main()
        sys.argv = ["nnabla_cli", "nothing_like_it"]
        try:
            main()
        except SystemExit as done:
            print("ended", done.code)
    """)
    assert out[-2:] == ["ended", "2"]


def test_parameters_of_a_message():
    """`set_parameter_from_proto` registers the parameters of a protobuf message."""
    run("""
        import numpy as np
        import nnabla as nn
        from nnabla.parameter import get_parameter_or_create, set_parameter_from_proto
        from nnabla.utils import nnabla_pb2
        proto = nnabla_pb2.NNablaProtoBuf()
        for name, shape, need_grad in (("a/W", (2, 3), True), ("b", (), False), ("c", (0,), True)):
            size = int(np.prod(shape))
            parameter = proto.parameter.add(variable_name=name, need_grad=need_grad, data=np.arange(size) + 0.5)
            parameter.shape.dim.extend(shape)
        old = get_parameter_or_create("a/W", (2, 3), need_grad=False)
        with nn.parameter_scope("s"):
            set_parameter_from_proto(proto)
        set_parameter_from_proto(proto)
        found = nn.get_parameters(grad_only=False)
        assert sorted(found) == ["a/W", "b", "c", "s/a/W", "s/b", "s/c"]
        assert [found[name].need_grad for name in ("a/W", "b", "c")] == [True, False, True]
        assert [found[name].shape for name in ("a/W", "b", "c")] == [(2, 3), (), (0,)]
        assert old.d.tolist() == [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]
        assert len(proto.parameter) == 3
        for first in ([3, 2], [3, 3]):
            proto.parameter[1].data[:] = [7.0]
            proto.parameter[0].shape.dim[:] = first
            try:
                set_parameter_from_proto(proto)
            except ValueError:
                pass
            else:
                raise AssertionError(first)
            assert found["b"].d == 0.5
    """)


def test_the_gradient_of_an_unlinked_variable_may_have_been_cleared():
    """Two losses share an unlinked variable, as in a GAN."""
    run("""
        import numpy as np
        import nnabla as nn
        import nnabla.functions as F
        import nnabla.parametric_functions as PF

        def step(first_clears):
            # A discriminator learns from generated values. The generator's step clears the gradient of both.
            nn.clear_parameters()
            z = nn.Variable.from_numpy_array(np.ones((2, 3)))
            fake = F.tanh(PF.affine(z, 4, name="generator", rng=np.random.RandomState(0)))
            unlinked = fake.get_unlinked_variable(need_grad=True)
            scores = [PF.affine(F.relu(x), 1, name="d", rng=np.random.RandomState(1)) for x in (fake, unlinked)]
            of_generator, of_discriminator = map(F.mean, scores)
            for turn in range(3):
                fake.forward(clear_no_need_grad=True)
                of_discriminator.forward(clear_no_need_grad=True)
                for v in nn.get_parameters().values():
                    v.g = 0
                if not first_clears:
                    unlinked.g = 0
                of_discriminator.backward(clear_buffer=True)
                found = [v.g.copy() for v in (unlinked, *nn.get_parameters().values())]
                of_generator.forward(clear_no_need_grad=True)
                of_generator.backward(clear_buffer=first_clears)
            return found

        for cleared, zeroed in zip(step(True), step(False)):
            assert np.array_equal(cleared, zeroed)
    """)


def test_arguments_of_a_function_may_be_a_method():
    """A user's function may define `args` as a method instead of a property."""
    run("""
        import numpy as np
        import nnabla as nn
        from nnabla.function import PythonFunction

        class Twice(PythonFunction):
            def args(self):
                return {"times": 2}
            def min_outputs(self):
                return 1
            def grad_depends_input_data(self, i, j):
                return False
            def grad_depends_output_data(self, i, o):
                return False
            def setup_impl(self, inputs, outputs):
                outputs[0].reset_shape(inputs[0].shape, True)
            def forward_impl(self, inputs, outputs):
                outputs[0].d = 2 * inputs[0].d
            def backward_impl(self, inputs, outputs, propagate_down, accum):
                inputs[0].g += 2 * outputs[0].g

        y = Twice(nn.get_current_context())(nn.Variable.from_numpy_array(np.ones(3)))
        y.forward()
        assert y.d.tolist() == [2, 2, 2] and y.parent.info.args == {}
    """)


def test_function_bases_take_their_own_argument_names():
    """Functions of `nnabla.function_bases` take their own argument names, which differ from the names in `F`."""
    run("""
        import inspect
        import numpy as np
        import nnabla as nn
        import nnabla.function_bases as FB
        import nnabla.functions as F
        x = nn.Variable.from_numpy_array(np.random.RandomState(0).randn(2, 3, 4, 4) + 3)
        with nn.auto_forward():
            for name in ("max", "mean", "min", "prod", "sum"):
                here, there = getattr(FB, name), getattr(F, name)
                want = there(x, (1, 2), True).d
                assert np.array_equal(here(x, axes=(1, 2), keep_dims=True).d, want) and want.shape == (2, 1, 1, 4)
                assert np.array_equal(here(x, (1, 2), True).d, want)
                assert list(inspect.signature(here).parameters)[:3] == ["x", "axes", "keep_dims"]
            assert np.array_equal(FB.norm(x, 2, axes=[3]).d, F.norm(x, 2, [3]).d)
            big = FB.interpolate(x, (7, 7), "linear")
            assert np.array_equal(big.d, F.interpolate(x, output_size=(7, 7), mode="linear", align_corners=True).d)
            small = FB.interpolate(x, (2, 2), "nearest", False, channel_last=False)
            assert small.shape == (2, 3, 2, 2)
        try:
            FB.sum(np.ones(3))
        except AssertionError:
            pass
        else:
            raise RuntimeError("an array is no variable")
    """)
