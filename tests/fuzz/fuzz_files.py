"""Fuzzes each file reader with damaged and hostile files.

The only accepted outcome is a prompt, typed error or a valid read.

`python tests/fuzz/fuzz_files.py [--count N] [--seed N] [reader ...]` reads N files with each reader. The test suite
reads a few. Each file depends only on the seed and its number, so that a failure can be repeated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import resource
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import onnx

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.datasets import read_idx
from kinnor.files import network_file, parameter_file, schema, solver_file
from kinnor.files.solver_file import State
from kinnor.parameter import set_parameter

SECONDS = 1.0
"""CPU seconds that reading a damaged file may take."""
N_BYTES = 256 << 20
"""Memory that reading a damaged file may take."""
SECRET = 1234.5
"""Value in a file next to the file that is read. A reader that returns it was led outside its file."""

SHAPES = {"conv/W": (2, 3), "conv/b": (3,), "none": (2, 0), "scale": ()}
"""The parameters in valid files: shapes by name."""
SIZES = [0, 1, 127, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
"""Sizes to write into files: common, at the limits of integer types, and absurd."""
NAMES = [
    "",
    "/",
    ".",
    "..",
    "../../evil",
    "/etc/passwd",
    "a//b",
    "conv",
    "conv/W/x",
    "a\0b",
    "\ud800",
    "a/" * 5000,
    "é",
]
"""Names of parameters to write into files, most of them hostile."""

_watching = False


def _watch(event, arguments):
    """An audit hook: raises if a reader loads a pickle, or opens a file for writing."""
    if not _watching:
        return
    if event.startswith("pickle."):
        raise AssertionError("a pickle was loaded")
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        raise AssertionError(f"{arguments[0]} was opened to be written")


# --- Valid files, and hostile files that random changes of bytes would rarely produce


def whole(reader, path):
    """Writes a valid file for this reader, which is one of `READERS`."""
    kind, _, extension = reader.partition(".")
    if kind == "onnx":
        _whole_onnx(path)
    elif kind == "networks" or extension == "nnp":
        _whole_network(path)
    elif kind in ("parameters", "opened"):
        entries = [parameter_file.Entry(k, np.full(s, 0.5, np.float32), k != "scale") for k, s in SHAPES.items()]
        parameter_file.save(path, entries)
    elif kind == "states":
        names = ("mean", "var")
        arrays = {k: {name: np.full(s, 0.5, np.float32) for name in names} for k, s in SHAPES.items()}
        solver_file.save(path, {k: State(3, found) for k, found in arrays.items()})
    else:
        content = struct.pack(">HBBIII", 0, 8, 3, 4, 2, 3) + bytes(range(24))
        path.write_bytes(gzip.compress(content, mtime=0) if extension == "gz" else content)


def hostile(reader, path, rng):
    """Writes a well-formed file with false contents, such as huge sizes."""
    kind, _, extension = reader.partition(".")
    if kind == "onnx":
        _hostile_onnx(path, rng)
    elif kind == "networks" or extension == "nnp":
        _hostile_network(path, rng)
    elif extension == "safetensors":
        path.write_bytes(_hostile_safetensors(rng))
    elif extension == "protobuf":
        path.write_bytes(_hostile_protobuf(kind, rng))
    elif extension == "h5":
        with h5py.File(path, "w") as file:
            _add_hostile(file, kind, path.with_name("secret.h5"), rng)
    else:
        sizes = [rng.choice(SIZES) & 0xFFFFFFFF for _ in range(rng.choice([0, 1, 3, 33, 255]))]
        content = bytes([0, 0, rng.choice([8, 13, 14, 99]), len(sizes)])
        content += b"".join(struct.pack(">I", n) for n in sizes) + bytes(rng.choice([0, 8, 1 << 20]))
        path.write_bytes(gzip.compress(content, mtime=0) if extension == "gz" else content)


def _whole_network(path):
    """Writes a valid archive with a network and its parameters."""
    nn.clear_parameters()
    x = nn.Variable((2, 1, 4, 4))
    y = PF.affine(F.relu(PF.batch_normalization(PF.convolution(x, 2, (3, 3), name="c"))), 3, name="f")
    described = nn.graph_def.create_graph_from_variable("net", y, {"x": x, "y": y})
    described.save(path, include_parameter=True, executors=[{"name": "run", "network": "net"}])
    nn.clear_parameters()


def _hostile_network(path, rng):
    """Writes a network with misleading names and sizes, in the format of the file name."""
    proto = schema.messages().NNablaProtoBuf()
    names = [n for n in (*NAMES, *SHAPES, "x", "y", "h", "loop{t}", "a[0]") if n.isprintable()]
    lengths = [n for n in SIZES if n < 2**63] + [-1, 2, 3]
    for _ in range(rng.choice([1, 1, 2])):
        net = proto.network.add(name=rng.choice(names), batch_size=rng.choice([0, 2, 2, *lengths]))
        for repeat in rng.sample(["t", "u"], rng.randrange(3)):
            net.repeat_info.add(id=repeat, times=rng.choice([0, 1, 3, *lengths]))
        for name in rng.sample(names, rng.randrange(2, 8)):
            kind = rng.choice(["Buffer", "Buffer", "Parameter", "?"])
            variable = net.variable.add(name=name, type=kind, repeat_id=rng.sample(["t", "u", "v"], rng.choice([0, 1])))
            variable.shape.dim.extend(rng.choice(lengths) for _ in range(rng.choice([0, 1, 2, 70])))
            variable.initializer.type = rng.choice(["Normal", "NormalAffineHe", "Constant", "UniformCLConvGlorot", "?"])
            variable.initializer.multiplier = rng.choice([0, 1, -1, float("nan"), 1e38])
        given = [v.name for v in net.variable]
        kinds = ["Add2", "Tanh", "Affine", "Convolution", "Reshape", "RepeatStart", "RepeatEnd", "Delay", "Concatenate"]
        for i in range(rng.randrange(1, 9)):
            function = net.function.add(name=f"f{rng.choice([i, 0])}")
            function.type = rng.choice([*kinds, "RecurrentInput", "RecurrentOutput", "Sink", "PythonFunction", ""])
            function.input.extend(rng.choice(given) for _ in range(rng.choice([0, 1, 2, 3])))
            function.output.extend(rng.choice(given) for _ in range(rng.choice([0, 1, 1, 2])))
            function.repeat_id.extend(rng.sample(["t", "u"], rng.choice([0, 0, 1])))
            if function.type.startswith("Repeat"):
                function.repeat_param.repeat_id, function.repeat_param.times = rng.choice("tuv"), rng.choice(lengths)
            elif function.type.startswith(("Recurrent", "Delay")):
                held = function.recurrent_param
                held.repeat_id, held.length, held.axis = rng.choice("tuv"), rng.choice(lengths), rng.choice(lengths)
            elif function.type in ("Convolution", "Reshape"):
                held = (
                    function.convolution_param.pad if function.type == "Convolution" else function.reshape_param.shape
                )
                held.dim.extend(rng.choice(lengths) for _ in range(rng.choice([1, 2, 40])))
    text = network_file.text(proto)
    if path.suffix == ".protobuf":
        path.write_bytes(proto.SerializeToString())
    elif path.suffix != ".nnp":
        path.write_text(text * rng.choice([1, 1, 2]), encoding="utf-8", errors="replace")
    else:
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w", rng.choice([0, zipfile.ZIP_DEFLATED])) as archive:
            warnings.simplefilter("ignore")  # about duplicate names in the archive
            for name in rng.sample(["network.nntxt", "../evil.nntxt", "/etc/x.prototxt", "a/b/c.protobuf", "x.pkl"], 2):
                archive.writestr(name, text)
            content = rng.choice([b"", b" " * (17 << 20), b"\x89HDF\r\n\x1a\n", b"\x80\x04."])
            archive.writestr(
                rng.choice(["parameter.h5", "p.protobuf", "z.nntxt", "o_Adam_optimizer.h5.optimizer"]), content
            )


def _whole_onnx(path):
    """Writes a valid ONNX model."""
    nn.clear_parameters()
    x = nn.Variable((2, 1, 4, 4))
    y = PF.affine(F.relu(PF.convolution(x, 2, (3, 3), name="c")), 3, name="f")
    kinnor.onnx.save(y, path, {"x": x})
    nn.clear_parameters()


def _hostile_onnx(path, rng):
    """Writes an ONNX model with misleading names, sizes, external files and function definitions."""
    names = ["x", "y", "h", "", "a" * 100, "\u00e9"]
    kinds = ["Add", "Relu", "Conv", "If", "Loop", "Constant", "Attention", "Reshape", "Mine", "NonMaxSuppression"]
    proto = onnx.ModelProto(ir_version=8)
    for domain in rng.sample(["", "ai.onnx", "mine"], rng.choice([0, 1, 1, 3])):
        proto.opset_import.add(domain=domain, version=rng.choice([17, 17, 21, 0, -1, 2**62]))
    proto.graph.name = "net"

    def fill(tensor):
        """Fills a tensor with random type, shape and data that need not match."""
        tensor.name, tensor.data_type = rng.choice(names), rng.choice([1, 1, 7, 9, 16, 8, 21, 999])
        tensor.dims.extend(rng.choice([2, 3, 0, -1, 2**31, 2**60, 2**62]) for _ in range(rng.choice([0, 1, 2, 70])))
        what = rng.randrange(4)
        if what == 0:
            tensor.raw_data = bytes(rng.choice([0, 4, 8, 24, 36]))
        elif what == 1:
            tensor.float_data.extend([0.5] * rng.choice([1, 4, 9]))
        elif what == 2:
            tensor.data_location = onnx.TensorProto.EXTERNAL
            places = ["../secret.h5", "secret.h5/../../x", "/etc/passwd", "/dev/zero", ".", "a\0b", "none", path.name]
            tensor.external_data.add(key="location", value=rng.choice(places))
            for key in rng.sample(["offset", "length"], rng.randrange(3)):
                tensor.external_data.add(key=key, value=rng.choice(["0", "-1", str(2**60), "x", "9" * 5000]))

    def graph(made, depth):
        """Fills a graph with random tensors, values and nodes, nested up to some `depth`."""
        for _ in range(rng.choice([0, 1, 3])):
            fill(made.initializer.add())
        for held in (made.input, made.output):
            for _ in range(rng.choice([0, 1, 2])):
                info = held.add(name=rng.choice(names))
                if rng.random() < 0.8:
                    info.type.tensor_type.elem_type = rng.choice([1, 1, 7, 8, 999])
                    info.type.tensor_type.shape.dim.add(dim_value=rng.choice([2, -1, 2**62]))
        many = 120_000 if depth == 0 and rng.random() < 0.01 else 5
        for _ in range(rng.choice([1, 2, many])):
            node = made.node.add(op_type=rng.choice(kinds), domain=rng.choice(["", "", "mine", "ai.onnx"]))
            node.input.extend(rng.choice(names) for _ in range(rng.choice([0, 1, 2])))
            node.output.extend(rng.choice(names) for _ in range(rng.choice([0, 1, 1, 2])))
            if len(made.node) < 9 and rng.random() < 0.5:
                held = node.attribute.add(name=rng.choice(["then_branch", "body", "value", "axis"]))
                held.type = rng.choice([0, 1, 2, 3, 4, 5, 5, 7, 11, 13])
                if held.type == onnx.AttributeProto.TENSOR:
                    fill(held.t)
                elif held.type == onnx.AttributeProto.GRAPH and depth < rng.choice([2, 30]):
                    graph(held.g, depth + 1)

    graph(proto.graph, 0)
    for _ in range(rng.choice([0, 0, 1, 2])):  # Functions may call themselves and each other.
        function = proto.functions.add(name="Mine", domain="mine", input=["a"], output=["b"])
        function.opset_import.add(domain=rng.choice(["", "mine"]), version=17)
        function.node.add(op_type=rng.choice(kinds), domain=rng.choice(["mine", ""]), input=["a"], output=["b"])
    path.write_bytes(proto.SerializeToString())


def _hostile_safetensors(rng):
    """Returns a safetensors file whose header does not match its data."""
    header, end = {}, 0
    for name in rng.sample([*NAMES, *SHAPES], 3):
        shape = [rng.choice([*SIZES, 2, 3]) for _ in range(rng.choice([0, 1, 2, 70]))]
        start, end = end, end + rng.choice([0, 4, 8, rng.choice(SIZES)])
        header[name] = {"dtype": rng.choice(["F32", "I64", "BOOL", "F8_E4M3", "x"]), "shape": shape}
        header[name]["data_offsets"] = [start, end]
    header["__metadata__"] = {"need_grad": rng.choice(["{}", "[" * 9999, json.dumps(dict.fromkeys(header, 1)), "1e9"])}
    text = json.dumps(header).encode()
    length = rng.choice([len(text), len(text), len(text), *SIZES])
    return (length & (2**64 - 1)).to_bytes(8, "little") + text + bytes(min(end, 64))


def _hostile_protobuf(kind, rng):
    """Returns a parameter or solver-state message whose shapes do not match its data."""
    lengths = [n for n in SIZES if n < 2**63]

    def fill(array):
        """Fills a message with a random shape and data that need not match."""
        array.shape.dim.extend(rng.choice([*lengths, 2, 3]) for _ in range(rng.choice([0, 1, 2, 70, 5000])))
        array.data.append(bytes(rng.choice([0, 3, 4, 24])))

    name = rng.choice([n for n in (*NAMES, *SHAPES) if n.isprintable()])
    if kind == "parameters":
        message = schema.arrays().NNablaProtoBuf()
        fill(message.parameter.add(variable_name=name, need_grad=rng.random() < 0.5))
    else:
        message = schema.arrays().Optimizer()
        state = message.solver.states.add(key=name).value
        state.t = rng.choice(SIZES) & 0xFFFFFFFF
        fill(state.state_parameter.add(key=rng.choice(["mean", "var", "x"])).value)
    return message.SerializeToString()


def _add_hostile(file, kind, secret, rng):
    """Adds a hostile entry to an HDF5 file: a link to `secret`, a wrong type or a huge shape."""
    base = file if kind == "parameters" else file.require_group(rng.choice(list(SHAPES)))
    if kind == "states" and "t" not in base:
        base["t"] = np.int64(rng.choice([1, -1, 2**62]))
    name = rng.choice(["mean", "var", "a/b", b"\xff\xfe", "g" + "/g" * rng.choice([1, 200])])
    what = rng.randrange(10)
    made = None
    if what == 0:
        made = base.create_dataset(name, (4,), "f4", external=[(os.fspath(secret), 0, 16)])
    elif what == 1:
        base[name] = h5py.ExternalLink(os.fspath(secret), "/a")
    elif what == 2:
        base[name] = h5py.SoftLink(rng.choice(["/", "/conv/W", "nowhere"]))
    elif what == 3:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(os.fspath(secret), "a", (4,))
        made = base.create_virtual_dataset(name, layout)
    elif what == 4:
        base[name] = base
    elif what == 5:
        made = base.create_dataset(name, (rng.choice([2**20, 2**28, 2**58]),), "f4", chunks=(1024,))
    elif what == 6:
        made = base.create_dataset(name, (2**20,), "f4", chunks=(2**18,), compression="gzip", fillvalue=0)
    elif what == 7:
        made = base.create_dataset(name, data=rng.choice(["text", np.arange(3), 1j, np.float32(2), h5py.Empty("f")]))
    elif what == 8:
        made = base.create_dataset(name, (0, rng.choice([2**20, 2**61])), "f4", chunks=(1, 1), maxshape=(None, None))
    else:
        base.create_group(name)
    if made is not None:
        made.attrs["index"] = rng.choice([0, np.nan, "x", np.zeros(3), 2**62])
        made.attrs["need_grad"] = rng.choice([True, False, "no"])


def damaged(content, others, rng):
    """Returns the content with one or more random edits. Some copy bytes from `others`."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        at = rng.randrange(len(content) + 1)
        what = rng.randrange(8)
        if what == 0:
            del content[at:]
        elif what == 1:
            del content[at : at + rng.randint(1, 64)]
        elif what == 2:
            content[at:at] = rng.randbytes(rng.randint(1, 64))
        elif what == 3:
            order = rng.choice(["little", "big"])
            width = rng.choice([1, 2, 4, 8])
            content[at : at + width] = (rng.choice(SIZES) & (256**width - 1)).to_bytes(width, order)
        elif what == 4:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            content[at : at + 64] = other[start : start + 64]
        elif what == 5:
            content[at:at] = content[at : at + 32] * rng.choice([1, 2, 100])
        else:
            content[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(content)


# --- Readers, and the state that a failed read must not change. All have the methods of `Parameters`.


class Parameters:
    """Reads parameter files into a tree that already has some of the file's parameters."""

    def __init__(self):
        nn.clear_parameters()
        self.made = {k: nn.Variable.from_numpy_array(np.full(s, 7, np.float32)) for k, s in SHAPES.items()}
        self.made.pop("scale")
        for key, variable in self.made.items():
            set_parameter(key, variable)

    def read(self, path):
        """Reads the file."""
        nn.load_parameters(path, strict=False)

    def is_untouched(self):
        """True if the parameters that existed before are unchanged."""
        now = nn.get_parameters(grad_only=False)
        return list(now) == list(self.made) and all((v.d == 7).all() and v.data.dtype == "f4" for v in now.values())

    def arrays(self):
        """Returns the arrays that a successful read made."""
        return [v.d for v in nn.get_parameters(grad_only=False).values()]


class Opened:
    """Opens parameter files without loading them."""

    def __init__(self):
        self.found = {}

    def read(self, path):
        """Opens the file."""
        self.found = nn.open_parameters(path)

    def is_untouched(self):
        """True: a refused file leaves nothing behind."""
        return not self.found

    def arrays(self):
        """Returns the arrays of a file that was opened."""
        return list(self.found.values())


class States:
    """Reads solver states into a solver that has done two updates."""

    def __init__(self):
        self.made = {k: nn.Variable.from_numpy_array(np.ones(s, np.float32), need_grad=True) for k, s in SHAPES.items()}
        self.solver = S.Adam()
        self.solver.set_parameters(self.made)
        for _ in range(2):
            for variable in self.made.values():
                variable.g = 1
            self.solver.update()
        self.before = self._bytes()

    def _bytes(self):
        """Returns the solver states as bytes."""
        states = self.solver.get_states()
        return {k: (s.t, {n: v.d.tobytes() for n, v in s.pstate.items()}) for k, s in states.items()}

    def read(self, path):
        """Reads the file into the solver."""
        self.solver.load_states(path)

    def is_untouched(self):
        """True if the states are unchanged."""
        return self._bytes() == self.before

    def arrays(self):
        """Returns all arrays of the states."""
        return [v.d for s in self.solver.get_states().values() for v in s.pstate.values()]


class NetworkParameters(Parameters):
    """Reads parameters from an archive with a network, into a tree with other parameters."""

    def __init__(self):
        super().__init__()
        del self.made["conv/W"], self.made["conv/b"]
        nn.clear_parameters()
        for key, variable in self.made.items():
            set_parameter(key, variable)


class Networks(Parameters):
    """Reads network descriptions and builds them in a scope of their own.

    The parameters outside must stay unchanged.
    """

    def read(self, path):
        """Reads the networks, and builds the small ones."""
        described = nn.graph_def.load(path)
        described.expand_loop_control()
        for network in described.networks.values():
            list(network.forward_sequence())
        if sum(1 for p in described.get_parameters().values() if p.size > 1 << 20) == 0:
            for network in described.networks.values():
                if all(_is_small(v) for v in (*network.variables.values(), *network.parameters.values())):
                    network(batch_size=2)

    def arrays(self):
        """Returns the arrays of all parameters."""
        return [v.d for v in nn.get_parameters(grad_only=False).values()]


def _is_small(variable):
    """True if a variable is small enough to build."""
    return math.prod(abs(n) for n in variable.shape) < 1 << 20


class Onnx:
    """Reads ONNX models, which hold their own parameters."""

    def __init__(self):
        self.model = None

    def read(self, path):
        """Reads the model."""
        self.model = kinnor.onnx.load(path)

    def is_untouched(self):
        """True if no model was read."""
        return self.model is None

    def arrays(self):
        """Returns the parameters of the model."""
        return [v.d for v in self.model.get_parameters().values()]


class Idx:
    """Reads IDX files, without state."""

    def __init__(self):
        self.found = np.zeros(1)

    def read(self, path):
        """Reads the file as an array."""
        self.found = read_idx(path)

    def is_untouched(self):
        """Returns True: nothing exists before."""
        return True

    def arrays(self):
        """Returns the array."""
        return [self.found]


READERS = {
    "parameters.safetensors": Parameters,
    "opened.safetensors": Opened,
    "parameters.h5": Parameters,
    "parameters.protobuf": Parameters,
    "parameters.nnp": NetworkParameters,
    "networks.nnp": Networks,
    "networks.nntxt": Networks,
    "networks.prototxt": Networks,
    "networks.protobuf": Networks,
    "states.safetensors": States,
    "states.h5": States,
    "states.protobuf": States,
    "onnx.onnx": Onnx,
    "idx.plain": Idx,
    "idx.gz": Idx,
}
"""The class that reads each kind of file and checks the results."""


def fuzz(reader, count, seed, folder):
    """Reads `count` damaged or hostile files with one reader.

    Args:
        reader: One of `READERS`.
        count: Number of files.
        seed: Seed of all random choices.
        folder: An empty folder. The last file stays there.

    Returns:
        The number of files that were refused, and the number that were read because the damage was not detectable
            or
        does not matter.
    """
    global _watching
    path = Path(folder, reader)
    secret = Path(folder, "secret.h5")
    with h5py.File(secret, "w") as file:
        file["a"] = np.full(4, SECRET, np.float32)
    whole(reader, path)
    content = path.read_bytes()
    files = {path.name: None, secret.name: secret.read_bytes()}
    state, outcomes = READERS[reader](), [0, 0]
    state.read(path)
    state = READERS[reader]()
    for number in range(count):
        rng = random.Random(f"{reader} {seed} {number}")
        if rng.random() < 0.3:
            hostile(reader, path, rng)
            if rng.random() < 0.3:
                path.write_bytes(damaged(path.read_bytes(), [content], rng))
        else:
            path.write_bytes(damaged(content, [content, path.read_bytes()], rng))
        where = f"file {number} of seed {seed} for {reader}"
        top, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        _watching = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                state.read(path)
            is_read = True
        except (nn.Error, OSError):
            is_read = False
        except BaseException as error:
            raise AssertionError(f"{where}: expected a typed error, got {type(error).__name__}: {error}") from error
        finally:
            _watching = False
        seconds = time.process_time() - start
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - top << 10
        assert seconds < SECONDS, f"{where}: took {seconds:.1f} s"
        assert grown < N_BYTES, f"{where}: took {grown >> 20} MiB"
        assert {p.name for p in Path(folder).iterdir()} == set(files), f"{where}: other files are there"
        outcomes[is_read] += 1
        if is_read:
            assert not any((np.asarray(a) == SECRET).any() for a in state.arrays()), f"{where}: another file was read"
            state = READERS[reader]()
        else:
            assert state.is_untouched(), f"{where}: was refused and changed something"
    assert secret.read_bytes() == files[secret.name]
    nn.clear_parameters()
    return outcomes


sys.addaudithook(_watch)


def main():
    """Fuzzes the readers named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("readers", nargs="*", default=list(READERS), metavar="reader")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for reader in given.readers:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                refused, read = fuzz(reader, given.count, given.seed, folder)
            except AssertionError:
                found = Path(folder, reader)
                kept = Path(tempfile.gettempdir(), f"found-{os.getpid()}-{reader}")
                kept.write_bytes(found.read_bytes())
                print(f"{reader}: the file is kept as {kept}", file=sys.stderr)
                raise
        print(f"{reader}: {refused} refused, {read} read, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
