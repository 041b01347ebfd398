"""Files of parameters: round trips, files that do not match, and malicious files."""

import io
import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import kinnor as nn
import kinnor.parametric_functions as PF
from kinnor.files import parameter_file, parameter_protobuf, schema
from kinnor.initializer import ConstantInitializer
from kinnor.parameter import ParameterError, get_parameter, get_parameter_or_create, set_parameter

FORMATS = [".safetensors", ".h5"]
"""Extensions of formats that keep the order, element types and `need_grad`."""


def listing(folder):
    """Returns the sorted names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def keys():
    """Returns the paths of all parameters."""
    return list(nn.get_parameters(grad_only=False))


def network(n=2):
    """Creates the parameters of a small network."""
    x = nn.Variable((n, 3, 8, 8))
    for name in ("z", "a"):  # not in alphabetical order
        with nn.parameter_scope(name):
            h = PF.batch_normalization(PF.convolution(x, 4, (3, 3)))
    h = PF.prelu(h)
    get_parameter_or_create("index", None, np.arange(5), need_grad=False)
    get_parameter_or_create("double", None, np.full((2, 0), 0.1))
    get_parameter_or_create("flags", None, np.array([True, False]), need_grad=False)
    get_parameter_or_create("half", None, np.array([0.1, 7], np.float16))
    return h


def described():
    """Returns path, shape, need_grad, type and bytes of each parameter, to compare two states."""
    return [
        (key, v.shape, v.need_grad, v.data.dtype, v.d.tobytes())
        for key, v in nn.get_parameters(grad_only=False).items()
    ]


@pytest.mark.parametrize("extension", FORMATS)
def test_files_keep_order_values_dtypes_and_need_grad(tmp_path, extension):
    network()
    before = described()
    nn.save_parameters(tmp_path / f"p{extension}")
    nn.clear_parameters()
    nn.load_parameters(str(tmp_path / f"p{extension}"))
    assert described() == before
    assert listing(tmp_path) == [f"p{extension}"]


@pytest.mark.parametrize("extension", FORMATS)
def test_scopes_in_files_are_relative(tmp_path, extension):
    """Files store paths relative to the scope in which they are saved and loaded."""
    path = tmp_path / f"p{extension}"
    with nn.parameter_scope("one"):
        PF.affine(nn.Variable((1, 2)), 3)
        nn.save_parameters(path)
    with nn.parameter_scope("two"):
        nn.load_parameters(path)
    assert keys() == ["one/affine/W", "one/affine/b", "two/affine/W", "two/affine/b"]
    nn.save_parameters(path, {"only": nn.get_parameters()["one/affine/b"]})
    nn.clear_parameters()
    nn.load_parameters(path)
    assert keys() == ["only"]
    nn.save_parameters(path, {})
    nn.clear_parameters()
    nn.load_parameters(path)
    assert keys() == []


@pytest.mark.parametrize("extension", FORMATS)
def test_loading_fills_parameters_that_a_graph_uses(tmp_path, extension):
    x = nn.Variable((1, 2))
    x.d = 1
    y = PF.affine(x, 1, w_init=ConstantInitializer(2))
    nn.save_parameters(tmp_path / f"p{extension}")
    before = get_parameter("affine/W")
    before.d, before.need_grad = 7, False
    nn.load_parameters(tmp_path / f"p{extension}")
    assert get_parameter("affine/W") is before
    assert before.need_grad
    y.forward()
    assert y.d.tolist() == [[4]]


@pytest.mark.parametrize("extension", FORMATS)
def test_file_objects(extension):
    """Parameters are written to a file object and read from it."""
    network()
    before = described()
    file = io.BytesIO()
    nn.save_parameters(file, extension=extension)
    assert file.tell() == 0  # as in NNabla
    nn.clear_parameters()
    nn.load_parameters(file, extension=extension)
    assert described() == before


class Pipe:
    """A writable object that cannot seek."""

    def __init__(self):
        self.written = b""

    def write(self, data):
        """Appends the bytes."""
        self.written += data


@pytest.mark.parametrize("extension", FORMATS)
def test_write_only_objects(extension):
    """Parameters are written to an object that can only be written to."""
    network()
    before = described()
    pipe = Pipe()
    nn.save_parameters(pipe, extension=extension)
    nn.clear_parameters()
    nn.load_parameters(io.BytesIO(pipe.written), extension=extension)
    assert described() == before


@pytest.mark.parametrize("extension", FORMATS)
def test_a_file_that_does_not_fit_changes_nothing(tmp_path, extension):
    path = tmp_path / f"p{extension}"
    set_parameter("a", nn.Variable.from_numpy_array(np.ones(2)))
    set_parameter("b", nn.Variable.from_numpy_array(np.ones(2)))
    nn.save_parameters(path)
    nn.clear_parameters()
    get_parameter_or_create("b", (3,))
    with pytest.raises(ParameterError, match=r"expected shape \(3,\) for the existing parameter 'b', got \(2,\)"):
        nn.load_parameters(path)
    assert keys() == ["b"]
    nn.clear_parameters()
    get_parameter_or_create("b/c", (3,))
    with pytest.raises(ParameterError, match="expected a parameter at 'b', got a scope"):
        nn.load_parameters(path)
    assert keys() == ["b/c"]


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b"nonsense" * 9, lambda b: b[: len(b) // 2], lambda b: b[:-1]]
)
def test_damaged_files(tmp_path, extension, damage):
    """A damaged or truncated file is refused, and sets no parameters."""
    path = tmp_path / f"p{extension}"
    network()
    nn.save_parameters(path)
    path.write_bytes(damage(path.read_bytes()))
    nn.clear_parameters()
    with pytest.raises(ParameterError, match="load_parameters: expected a"):
        nn.load_parameters(path)
    assert keys() == []


@pytest.mark.parametrize("extension", FORMATS)
def test_randomly_damaged_files_give_typed_errors_only(tmp_path, extension):
    path = tmp_path / f"p{extension}"
    network()
    nn.save_parameters(path)
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    rng = np.random.RandomState(0)
    for _ in range(100):
        damaged = whole.copy()
        places = rng.randint(0, min(len(whole), 2000), 5)
        damaged[places] = rng.randint(0, 256, 5)
        path.write_bytes(damaged.tobytes())
        nn.clear_parameters()
        try:
            nn.load_parameters(path)
        except ParameterError:
            assert keys() == []


def test_a_foreign_safetensors_file(tmp_path):
    """A safetensors file of another program is read."""
    values = np.arange(3, dtype=np.float32)
    header = {
        "w.weight": {"dtype": "F32", "shape": [3], "data_offsets": [8, 20]},
        "count": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "foreign.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + np.int64(7).tobytes() + values.tobytes())
    nn.load_parameters(path)
    loaded = nn.get_parameters(grad_only=False)
    assert loaded["w.weight"].d.tolist() == [0, 1, 2]
    assert loaded["w.weight"].need_grad
    assert loaded["count"].d == 7
    assert not loaded["count"].need_grad


def write_safetensors(path, header, data=b""):
    """Writes a safetensors file with this header."""
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}, b""),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"),
        ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        ({"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        (
            {
                "a/b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]},
            },
            b"12",
        ),
        ({"": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"1"),
        ({"__metadata__": {"need_grad": "[1]"}, "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"1"),
        ({"__metadata__": {"need_grad": "[" * 9999}, "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"1"),
        ({"__metadata__": {"need_grad": "{}"}, "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"1"),
        ([], b""),
    ],
)
def test_malicious_safetensors_files(tmp_path, header, data):
    """Files with a malicious header raise ParameterError and register nothing."""
    path = tmp_path / "bad.safetensors"
    write_safetensors(path, header, data)
    with pytest.raises(ParameterError, match="load_parameters: expected"):
        nn.load_parameters(path)
    assert keys() == []


def test_malicious_h5_files(tmp_path):
    """Hostile HDF5 files raise ParameterError and register nothing."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "bad.h5"
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other.create_dataset("w", data=[1.0, 2.0]).attrs.update(index=0, need_grad=True)

    def huge(file):
        """Declares a huge data set."""
        file.create_dataset("w", (2**30, 2**10), "f4", chunks=True).attrs.update(index=0, need_grad=True)

    def external(file):
        """Links the data to another file."""
        file.create_dataset("w", (4,), "u1", external=[("/etc/hostname", 0, 4)]).attrs.update(index=0, need_grad=True)

    def text(file):
        """Holds text instead of numbers."""
        file.create_dataset("w", data="text").attrs.update(index=0, need_grad=True)

    def elsewhere(file):
        """Links to another HDF5 file."""
        file["w"] = h5py.ExternalLink(tmp_path / "other.h5", "/w")

    def virtual(file):
        """Maps data of another file."""
        layout = h5py.VirtualLayout((2,), "f8")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "w", (2,))
        file.create_virtual_dataset("w", layout).attrs.update(index=0, need_grad=True)

    def soft(file):
        """Links to a data set of the same file."""
        file["w"] = np.zeros(2, np.float32)
        file["x"] = h5py.SoftLink("/w")

    def loop(file):
        """Holds a group that contains itself."""
        group = file.create_group("g")
        group["g"] = group

    def packed(file):
        """Compresses the data."""
        w = file.create_dataset("w", data=np.zeros(9), compression="gzip")
        w.attrs.update(index=0, need_grad=True)

    def name(file):
        """Has a name that is not valid UTF-8."""
        file.create_dataset(b"\xff\xfe", data=[1.0]).attrs.update(index=0, need_grad=True)

    def index(file):
        """Has NaN as index."""
        file.create_dataset("w", data=[1.0]).attrs.update(index=np.nan, need_grad=True)

    for make in (huge, external, text, elsewhere, virtual, soft, loop, packed, name, index):
        with h5py.File(path, "w") as file:
            make(file)
        with pytest.raises(ParameterError, match="load_parameters: expected"):
            nn.load_parameters(path)
        assert keys() == []


def test_the_layout_of_h5_files_matches_nnabla(tmp_path):
    h5py = pytest.importorskip("h5py")
    network()
    nn.save_parameters(tmp_path / "p.h5")
    with h5py.File(tmp_path / "p.h5") as file:
        assert list(file) == ["a", "double", "flags", "half", "index", "prelu", "z"]
        w = file["z/conv/W"]
        assert (w.shape, w.dtype, w.attrs["index"], w.attrs["need_grad"]) == ((4, 3, 3, 3), "float32", 0, True)
        mean = file["a/bn/mean"]
        assert (mean.attrs["index"], mean.attrs["need_grad"]) == (10, False)


def test_formats_that_do_not_exist(tmp_path):
    """Unknown extensions are refused, and the known ones are named."""
    for name in ("p.foo", "p", ".h5x"):
        with pytest.raises(
            ParameterError, match=r"expected a name that ends in \.safetensors or \.h5 or \.protobuf, got"
        ):
            nn.save_parameters(tmp_path / name)
        with pytest.raises(ParameterError, match="load_parameters: expected a name that ends in"):
            nn.load_parameters(tmp_path / name)
    for name in ("p.nnp", "p.nntxt", "p.prototxt"):
        with pytest.raises(ParameterError, match="expected a name that ends in"):
            nn.save_parameters(tmp_path / name)
    with pytest.raises(NotImplementedError, match="is not supported yet"):
        nn.load_parameters(tmp_path / "p.onnx")
    with pytest.raises(nn.CallError, match="expected `proto`"):
        nn.load_parameters(tmp_path / "p.h5", proto=3)
    with pytest.raises(ParameterError, match="file object"):
        nn.save_parameters(io.BytesIO())
    nn.save_parameters(tmp_path / "plain", extension=".safetensors")
    nn.load_parameters(tmp_path / "plain", extension=".safetensors")


@pytest.mark.parametrize("extension", FORMATS)
def test_files_that_cannot_be_opened(tmp_path, extension):
    """Missing files and folders raise FileNotFoundError or OSError, in loading and in saving."""
    get_parameter_or_create("w", (2,))
    with pytest.raises(FileNotFoundError):
        nn.load_parameters(tmp_path / f"missing{extension}")
    with pytest.raises(OSError, match="missing"):
        nn.save_parameters(tmp_path / "missing" / f"p{extension}")
    (tmp_path / f"folder{extension}").mkdir()
    with pytest.raises(OSError, match="folder"):
        nn.save_parameters(tmp_path / f"folder{extension}")
    with pytest.raises(OSError, match="folder"):
        nn.load_parameters(tmp_path / f"folder{extension}")


@pytest.mark.parametrize("extension", FORMATS)
def test_a_name_that_a_format_cannot_store(tmp_path, extension):
    """A name that the format cannot store is refused, and the old file stays as it is."""
    path = tmp_path / f"p{extension}"
    path.write_bytes(b"before")
    w = nn.Variable((2,))
    bad = {"a": w, "a/b": w} if extension == ".h5" else {"__metadata__": w}
    with pytest.raises(ParameterError, match=r"save_parameters: expected (a|the) name"):
        nn.save_parameters(path, bad)
    assert path.read_bytes() == b"before"
    assert listing(tmp_path) == [path.name]


def test_entries_equal_the_contents_of_a_file(tmp_path):
    entries = [parameter_file.Entry("b", np.ones(2), True), parameter_file.Entry("a", np.zeros((), np.int8), False)]
    parameter_file.save(tmp_path / "p.safetensors", entries)
    loaded = parameter_file.load(tmp_path / "p.safetensors")
    assert [(e.name, e.values.tolist(), e.values.dtype, e.need_grad) for e in loaded] == [
        ("b", [1, 1], "float64", True),
        ("a", 0, "int8", False),
    ]


def test_bfloat16(tmp_path):
    """Parameters in bfloat16 keep their type and values in a file."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "p.safetensors"
    set_parameter("w", nn.Variable.from_numpy_array(np.array([0.5, 3], ml_dtypes.bfloat16)))
    nn.save_parameters(path)
    nn.clear_parameters()
    nn.load_parameters(path)
    loaded = get_parameter("w").d
    assert (loaded.dtype, loaded.tolist()) == (ml_dtypes.bfloat16, [0.5, 3])
    with pytest.raises(ParameterError, match=r"expected a dtype that \.h5 can hold, got bfloat16 of w"):
        nn.save_parameters(tmp_path / "p.h5")


ALL_FORMATS = [*FORMATS, ".protobuf"]
"""Extensions of all formats for parameters."""


@pytest.mark.parametrize("extension", ALL_FORMATS)
@pytest.mark.parametrize(
    "names",
    [
        [""],
        ["/"],
        ["a//b"],
        ["/a"],
        ["a/"],
        ["."],
        ["a/./b"],
        ["a/.."],
        ["a\0b"],
        ["\ud800"],
        ["a", "a/b"],
        ["a/b", "a"],
        ["a/b", "a//b"],
        ["a!", "a", "a/b/c"],
        ["/".join("a" * 129)],
        ["a" * 4097],
    ],
    ids=ascii,
)
def test_names_without_a_round_trip_are_refused(tmp_path, extension, names):
    path = tmp_path / f"p{extension}"
    path.write_bytes(b"before")
    with pytest.raises(ParameterError, match="save_parameters: expected"):
        nn.save_parameters(path, dict.fromkeys(names, nn.Variable((2,))))
    assert path.read_bytes() == b"before"
    assert listing(tmp_path) == [path.name]


@pytest.mark.parametrize("extension", ALL_FORMATS)
def test_odd_names_make_a_round_trip(tmp_path, extension):
    """Unusual names of parameters are saved and loaded unchanged."""
    names = ["a!", "a/b", "a-b", "é ü/漢", "...", "x/.hidden", "\n", "a\\b", "/".join("d" * 128), "w" * 4096]
    nn.save_parameters(tmp_path / f"p{extension}", dict.fromkeys(names, nn.Variable((2,))))
    nn.load_parameters(tmp_path / f"p{extension}")
    assert keys() == names


def test_deep_names_are_refused_soon(tmp_path):
    """Names of extreme depth are refused quickly."""
    h5py = pytest.importorskip("h5py")
    deep = "/".join("a" * 40_000)
    write_safetensors(tmp_path / "p.safetensors", {deep: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"1")
    (tmp_path / "p.protobuf").write_bytes(parameter_protobuf.encode([(deep, np.ones(1, np.float32), True)]))
    with h5py.File(tmp_path / "p.h5", "w") as file:
        group = file
        for _ in range(300):
            group = group.create_group("a")
    for path in tmp_path.iterdir():
        start = time.process_time()
        with pytest.raises(ParameterError, match="expected names of at most"):
            nn.load_parameters(path)
        assert time.process_time() - start < 0.5
    assert keys() == []


def test_declared_sizes_of_h5_files_are_not_allocated(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as file:
        for i in range(100):
            dataset = file.create_dataset(f"p{i}", (9_000_000,), "f4", chunks=(1 << 20,))
            dataset.attrs.update(index=i, need_grad=True)
    with pytest.raises(ParameterError, match="expected values inside the file, got only a shape"):
        nn.load_parameters(path)


@pytest.mark.parametrize("extension", ALL_FORMATS)
def test_an_axis_without_end_beside_an_empty_one(tmp_path, extension):
    """Files with an empty axis beside a huge one allocate nothing."""
    path = tmp_path / f"p{extension}"
    if extension == ".h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            dataset = file.create_dataset("w", (0, 2**60), "f4", chunks=(1, 1), maxshape=(None, None))
            dataset.attrs.update(index=0, need_grad=True)
    elif extension == ".protobuf":
        message = schema.messages().NNablaProtoBuf()
        message.parameter.add(variable_name="w").shape.dim.extend([0, 2**60])
        path.write_bytes(message.SerializeToString())
    else:
        write_safetensors(path, {"w": {"dtype": "F32", "shape": [0, 2**60], "data_offsets": [0, 0]}})
    with pytest.raises(ParameterError, match=r"expected a shape that memory can hold, got \(0, 1152921504606846976\)"):
        nn.load_parameters(path)


PROGRAM = """
import sys
import numpy as np
import kinnor as nn
from kinnor.parameter import set_parameter

def fill():
    blocks = []
    for size in (400_000, 1 << 14):
        while True:
            block = nn.NdArray((size // 4,))
            try:
                block.get_data("w", np.float32)
            except MemoryError:
                break
            blocks.append(block)
    return blocks

values = {f"p{i}": np.full(100_000, i, np.float32) for i in range(20)}
for path in sys.argv[1:]:
    nn.clear_parameters()
    nn.save_parameters(path, {k: nn.Variable.from_numpy_array(v, need_grad=True) for k, v in values.items()})
    # Existing parameters need new memory, none, or some. The rest are created.
    for i, (key, v) in enumerate(list(values.items())[:15]):
        set_parameter(key, nn.Variable.from_numpy_array(np.full(100_000, -1, "f2" if i % 2 else "f4"), need_grad=False))
    kept = dict(nn.get_parameters(grad_only=False))
    nn.clear_memory_cache()
    blocks = fill()
    del blocks[1 : 1 + 3]
    try:
        nn.load_parameters(path, strict=False)
    except MemoryError:
        print("refused", end=" ")
    now = nn.get_parameters(grad_only=False)
    assert list(now) == list(kept), list(now)
    for i, variable in enumerate(now.values()):
        assert variable.data.dtype == ("f2" if i % 2 else "f4"), i
        assert (variable.d == -1).all() and not variable.need_grad, i
    blocks.clear()
    nn.load_parameters(path, strict=False)
    now = nn.get_parameters(grad_only=False)
    assert all((now[k].d == v).all() and now[k].data.dtype == "f4" and now[k].need_grad for k, v in values.items())
    assert all(now[k] is v for k, v in kept.items())
"""


def test_loading_without_memory_changes_nothing(tmp_path):
    """A load that runs out of memory raises MemoryError and registers nothing."""
    paths = [str(tmp_path / f"p{extension}") for extension in ALL_FORMATS]
    environment = {**os.environ, "KINNOR_MEMORY_LIMIT": str(48 << 20)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, *paths], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["refused"] * 3), done.stderr


def test_loading_reaches_views_and_parts(tmp_path):
    """Loading writes to the array of a parameter, so NumPy views and parts see the values."""
    path = tmp_path / "p.safetensors"
    nn.save_parameters(path, {"w": nn.Variable.from_numpy_array(np.arange(4, dtype=np.float32))})
    w = get_parameter_or_create("w", (4,), ConstantInitializer(7))
    view, part = w.d, w.data.narrow(0, 1, 2)
    nn.load_parameters(path)
    assert (view.tolist(), part.data.tolist()) == ([0, 1, 2, 3], [1, 2])
    w.data.cast(np.float64)
    nn.load_parameters(path)
    assert (w.data.dtype, w.d.tolist(), part.data.tolist()) == ("float32", [0, 1, 2, 3], [1, 2])
    # A parameter that is a part of a larger array.
    whole = nn.NdArray.from_numpy_array(np.full(6, 9, np.float32))
    v = nn.Variable((4,))
    v.data = whole.narrow(0, 1, 4)
    set_parameter("w", v)
    nn.load_parameters(path)
    assert whole.data.tolist() == [9, 0, 1, 2, 3, 9]
    whole.cast(np.float64)
    with pytest.raises(nn.Error, match="narrow: expected writing as float64"):
        nn.load_parameters(path)
    assert whole.data.tolist() == [9, 0, 1, 2, 3, 9]


def test_reading_from_a_pipe_is_refused(tmp_path):
    """Loading from a named pipe is refused instead of waiting."""
    path = tmp_path / "p.safetensors"
    os.mkfifo(path)
    with pytest.raises(OSError, match="expected a path of a regular file"):
        nn.load_parameters(path)


def test_a_cleared_parameter_is_saved_as_nan(tmp_path):
    get_parameter_or_create("w", (2,), ConstantInitializer(1))
    get_parameter("w").data.clear()
    nn.save_parameters(tmp_path / "p.safetensors")
    nn.clear_parameters()
    nn.load_parameters(tmp_path / "p.safetensors")
    assert np.isnan(get_parameter("w").d).all()


def test_loading_compares_names(tmp_path):
    """`load_parameters` reports matched, missing and unexpected names."""
    path = tmp_path / "weights.safetensors"
    nn.save_parameters(path, {name: nn.Variable((2,)) for name in ("fc1/W", "fc1/b")})
    assert nn.load_parameters(path) == ([], [], ["fc1/W", "fc1/b"])  # Into a scope without parameters.
    found = nn.load_parameters(path)
    assert (found.matched, found.missing, found.unexpected) == (["fc1/W", "fc1/b"], [], [])
    assert repr(found) == "2 matched, 0 missing, 0 unexpected"
    nn.clear_parameters()
    own = {name: get_parameter_or_create(name, (2,), np.ones(2)) for name in ("fc_1/W", "fc1/b")}
    told = "without 'fc_1/W' and with the unexpected 'fc1/W'; strict=False loads what matches"
    with pytest.raises(ParameterError, match=re.escape(told)):
        nn.load_parameters(path)
    assert list(nn.get_parameters()) == ["fc_1/W", "fc1/b"]
    assert all(v.d.tolist() == [1.0, 1.0] for v in own.values())
    found = nn.load_parameters(path, strict=False)
    assert found == (["fc1/b"], ["fc_1/W"], ["fc1/W"])
    assert (own["fc1/b"].d.tolist(), own["fc_1/W"].d.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(nn.CallError, match="load_parameters: expected `strict`"):
        nn.load_parameters(path, strict="no")


def test_a_message_about_many_names_is_short(tmp_path):
    path = tmp_path / "weights.safetensors"
    nn.save_parameters(path, {f"layer{i}/W": nn.Variable((2,)) for i in range(1000)})
    get_parameter_or_create("W", (2,))
    with pytest.raises(ParameterError, match="'layer7/W' and 992 more; strict"):
        nn.load_parameters(path)
