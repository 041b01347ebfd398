"""NNabla's commands as functions of its modules. Each test runs in its own process."""

import subprocess
import sys
import textwrap

PROGRAM = """
import argparse, importlib, os
import numpy as np
import nnabla as nn, nnabla.functions as F, nnabla.parametric_functions as PF
from nnabla.utils.save import save
from nnabla.utils.cli import cli, convert, encode_decode_param, forward
from nnabla.utils.cli.train import train_command

parser = argparse.ArgumentParser(prog="program")
subparsers = parser.add_subparsers()
commands = "conv_dataset convert create_image_classification_dataset draw_graph forward infer profile train "
commands += "create_object_detection_dataset "
commands += "decode_param encode_param function_info plot_series plot_timer"
places = dict(infer="forward", decode_param="encode_decode_param", encode_param="encode_decode_param",
              function_info="func_info", plot_series="plot", plot_timer="plot")
for name in commands.split():
    module = importlib.import_module("nnabla.utils.cli." + places.get(name, name))
    getattr(module, f"add_{name}_command")(subparsers)
    assert callable(getattr(module, f"{name}_command"))
assert {*commands.split(), "dump"} == set(subparsers.choices)

x = nn.Variable((2, 3))
y = PF.affine(x, 2, name="a")
save("net.nnp", {
    "networks": [{"name": "net", "batch_size": 2, "outputs": {"y": y}, "names": {"x": x}}],
    "executors": [{"name": "run", "network": "net", "data": ["x"], "output": ["y"]}],
})
x.d = np.arange(6).reshape(2, 3)
x.d.astype(np.float32).tofile("x.bin")
y.forward()
for args in (argparse.Namespace(config="net.nnp", inputs=["x.bin"], output="o"),
             parser.parse_args("infer -c net.nnp -o o x.bin".split())):
    assert forward.infer_command(args) is True
    np.testing.assert_array_equal(np.fromfile("o_0_0.bin", np.float32).reshape(2, 2), y.d)
    os.remove("o_0_0.bin")

nn.save_parameters("p.h5")
cli.cli_main(parser, parser.parse_args("decode_param -p p.h5 -o texts".split()))
w = nn.get_parameters()["a/affine/W"].d.copy()
nn.clear_parameters()
encode_decode_param.load_param_in_txt("a/W", "texts/a~affine~W.txt")
np.testing.assert_allclose(nn.get_parameters()["a/W"].d, w, rtol=1e-6)
encode_decode_param.save_param_in_txt(np.ones((2, 1)), "ones.txt")
assert open("ones.txt").read().split() == ["(2,", "1)", "1", "1"] or open("ones.txt").read().startswith("(2, 1)")
encode_decode_param.encode_param_command(argparse.Namespace(indir="texts", param="q.h5"))
convert.convert_command(argparse.Namespace(files=["net.nnp", "net.nntxt"]))
assert os.path.exists("net.nntxt")

def refused(kind, told, call, *args):
    try:
        call(*args)
    except kind as error:
        assert told in str(error), error
    else:
        raise AssertionError(told)

refused(TypeError, "train: expected arguments with `config`, got 3", train_command, 3)
refused(TypeError, "expected the result of `ArgumentParser.add_subparsers`", convert.add_convert_command, parser)
missing = argparse.Namespace(config="none.nnp", inputs=["x.bin"])
refused(FileNotFoundError, "none.nnp", forward.infer_command, missing)
refused(FileNotFoundError, "none.txt", encode_decode_param.load_param_in_txt, "w", "none.txt")
open("bad.txt", "w").write("(2, 2)\\n1\\n")
refused(ValueError, "expected a shape and numbers", encode_decode_param.load_param_in_txt, "w", "bad.txt")
missing.func = forward.infer_command
refused(SystemExit, "program: ", cli.cli_main, parser, missing)
refused(SystemExit, "", cli.cli_main, parser, argparse.Namespace())
from nnabla.utils.cli.create_object_detection_dataset import get_anchors, load_label
open("a.txt", "w").write("1 0.5 0.5 0.25 0.5\\n")
assert load_label("a.txt") == [[1, 0.5, 0.5, 0.25, 0.5]] and load_label("gone.txt") == []
assert get_anchors(".", ["a.png", "gone.png"], 1).tolist() == [[0.25, 0.5]]
cli.version_command(None)
"""


def test_commands_are_functions_under_nnablas_names(tmp_path):
    """NNabla's functions for its commands can be called from a program."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import kinnor.compat.nnabla\n" + textwrap.dedent(PROGRAM)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Version:")
