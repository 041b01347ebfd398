"""`kinnor forward` and `kinnor infer`: run networks on data sets and on files of numbers."""

from __future__ import annotations

import csv
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import parameter as parameters
from ...cli import wrote
from ...cli.accepted import without_effect
from ...data.csv_data_source import CsvDataSource
from ...data.data_iterator import data_iterator
from ...files.atomic import replacing
from ...files.progress import Progress
from ...nnp import NetworkError
from ..utils.load import Executor, Info, load
from .train import feed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["add", "evaluate", "forward", "infer"]

TYPES = ("uint8", "int32", "float32")
"""Choices of `--data_type`."""


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of a command.

    Args:
        name: `forward` or `infer`.
        parser: The parser of the command.
    """
    parser.add_argument("-c", "--config", required=True, help="project file: .nnp, .nntxt or .prototxt")
    parser.add_argument("-p", "--param", help="file of parameters")
    parser.add_argument(
        "-b",
        "--batch_size",
        type=int,
        default=-1,
        help="batch size, if not what the file says"
        if name == "forward"
        else "number of examples in the files, if not as many as the numbers make",
    )
    if name == "infer":
        parser.add_argument("-o", "--output", help="prefix of the names of output files")
        parser.add_argument("-t", "--data_type", choices=TYPES, default="float32", help="type of the numbers")
        parser.add_argument("inputs", nargs="+", help="files of numbers, one for each input")
        return lambda args: wrote(
            infer(args.config, args.inputs, args.output, args.param, args.data_type, args.batch_size)
        )
    parser.add_argument("-d", "--dataset", required=True, help="CSV data set")
    parser.add_argument("-o", "--outdir", required=True, help="folder for results")
    parser.add_argument("-f", "--outfile", default="output_result.csv", help="name of the CSV file of results")
    parser.add_argument("--replace_path", action="store_true", help="write absolute paths of the data set's files")
    without_effect(parser, "outputs are numbers in the CSV file", "--result_outdir", takes="RESULT_OUTDIR")
    return lambda args: wrote(
        forward(args.config, args.dataset, args.outdir, args.param, args.outfile, args.batch_size, args.replace_path)
    )


def evaluate(executor: Executor) -> list[NDArray[Any]]:
    """Run an executor as many times as it specifies, on the current data of its inputs.

    Args:
        executor: The executor.

    Returns:
        An array for each output: mean, last value or standard deviation of the runs, as the executor specifies.
    """
    outputs: list[Any] = [node.variable_instance for node in executor.output_assign]
    found: list[list[NDArray[Any]]] = []
    for _ in range(executor.num_evaluations):
        executor.forward_target.forward(clear_no_need_grad=True)
        found.append([output.d.copy() for output in outputs])
    if executor.repeat_evaluation_type == "last":
        return found[-1]
    reduce = np.std if executor.repeat_evaluation_type == "std" else np.mean
    return [np.asarray(reduce(np.stack(each), axis=0)) for each in zip(*found, strict=True)]


def _load(config: str, param: str | None, batch_size: int) -> tuple[Info, list[Executor]]:
    """Load a project file. Returns its contents and its executors, at least one."""
    info = load(
        [config, *([param] if param else [])], prepare_data_iterator=False, batch_size=max(batch_size, 0) or None
    )
    if not info.executors:
        raise NetworkError(f"expected an executor in {config}, got none")
    return info, list(info.executors.values())


def forward(
    config: str,
    dataset: str,
    outdir: str,
    param: str | None = None,
    outfile: str = "output_result.csv",
    batch_size: int = -1,
    replace_path: bool = False,
) -> Path:
    """Run the executors of a project file on a data set.

    Args:
        config: Path of the project file.
        dataset: Path of a CSV file.
        outdir: Path of the folder for results, which is created.
        param: Path of a file of parameters.
        outfile: Name of the CSV file in that folder: the rows of the data set, followed by the outputs.
        batch_size: Batch size; the file's by default.
        replace_path: Whether to write relative paths in the rows as absolute paths.

    Returns:
        The path of the CSV file.

    Raises:
        NetworkError: If the project file is malformed, or if it has no executor.
        DataError: If the data set does not match the inputs.
        OSError: If a file cannot be read or written.
    """
    with parameters.parameter_scope("", OrderedDict()):
        info, executors = _load(config, param, batch_size)
        plain = any(d.uri == dataset and not d.normalize for d in info.datasets.values())
        plain = plain or any(executor.no_image_normalization for executor in executors)
        source = CsvDataSource(dataset, normalize=not plain)
        size = _batch(executors[0])
        names = [data for executor in executors for _, data in executor.output_assign.values()]
        rows: list[list[Any]] = []
        with data_iterator(source, size, with_memory_cache=False) as batches, Progress(source.size, "forward") as bar:
            while len(rows) < source.size:
                data = dict(zip(batches.variables, batches.next(), strict=True))
                found: list[NDArray[Any]] = []
                for executor in executors:
                    feed(executor, data)
                    found += evaluate(executor)
                for i in range(min(size, source.size - len(rows))):
                    rows.append([x[i].reshape(-1) for x in found])
                bar.to(len(rows))
    target = Path(outdir)
    target.mkdir(parents=True, exist_ok=True)
    with Path(dataset).open(encoding="utf-8-sig", newline="") as file:
        given = [row for row in csv.reader(file) if row]
    if replace_path:
        folder = Path(dataset).resolve().parent
        given[1:] = [
            [_absolute_path(folder, *column) for column in zip(given[0], row, strict=False)] for row in given[1:]
        ]
    header = [title for name, x in zip(names, rows[0], strict=True) for title in _titles(name, x.size)] if rows else []
    with replacing(target / outfile) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*given[0], *header])
        for row, outputs in zip(given[1:], rows, strict=True):
            writer.writerow([*row, *(value for x in outputs for value in x.tolist())])
    return target / outfile


def _absolute_path(folder: Path, title: str, value: str) -> str:
    """A value of the data set; the absolute path if it is the name of a file."""
    return value if title.startswith("#") or _is_number(value) else str(folder / value)


def _is_number(value: str) -> bool:
    """True if a text is a number."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def _titles(name: str, size: int) -> list[str]:
    """The column headers for an output with `size` elements."""
    return [name] if size == 1 else [f"{name}__{i}" for i in range(size)]


def _batch(executor: Executor) -> int:
    """The batch size of an executor's inputs."""
    for node in executor.dataset_assign:
        variable = node.variable_instance
        if variable is not None and variable.shape:
            return int(variable.shape[0])
    raise NetworkError(f"{executor.name}: expected an input with a batch, got none")


def _sorted(inputs: list[str]) -> tuple[list[str], list[str]]:
    """Paths of numbers, and paths of networks and parameters."""
    known = [path for path in inputs if Path(path).suffix in (".h5", ".protobuf", ".nnp", ".nntxt")]
    return [path for path in inputs if path not in known], known


def _count_examples(config: str, inputs: list[str], param: str | None, data_type: str) -> int:
    """The number of examples in files of numbers if it is the same in all; else -1, which leaves it to the network."""
    files, known = _sorted(inputs)
    with parameters.parameter_scope("", OrderedDict()):
        _, (executor, *_) = _load(config, param or (known[0] if known else None), 1)
        counts = set()
        for node, path in zip(executor.dataset_assign, files, strict=False):
            size = max(node.variable_instance.size, 1)
            counts.add(divmod(Path(path).stat().st_size // np.dtype(data_type).itemsize, size))
    number, rest = counts.pop() if len(counts) == 1 else (0, 0)
    return number if number > 0 and not rest else -1


def infer(
    config: str,
    inputs: list[str],
    output: str | None = None,
    param: str | None = None,
    data_type: str = "float32",
    batch_size: int = -1,
) -> list[Path]:
    """Run the first executor of a project file on files of numbers.

    Args:
        config: Path of the project file.
        inputs: Paths of binary files of numbers, one for each input. `param` may be among them.
        output: Prefix of the paths of output files: `OUTPUT_0_0.bin` is the first output. Without it the outputs
            are printed.
        param: Path of a file of parameters.
        data_type: Type of the numbers: `uint8`, `int32` or `float32`.
        batch_size: Batch size; by default as many examples as there are in the files.

    Returns:
        The paths of the files.

    Raises:
        NetworkError: If the project file is malformed, or if a file has another number of values than its input.
        OSError: If a file cannot be read or written.
    """
    if batch_size < 1:
        batch_size = _count_examples(config, inputs, param, data_type)
    files, known = _sorted(inputs)
    with parameters.parameter_scope("", OrderedDict()):
        _, (executor, *_) = _load(config, param or (known[0] if known else None), batch_size)
        if len(files) != len(executor.dataset_assign):
            wanted = list(executor.dataset_assign.values())
            raise NetworkError(f"expected a file for each of the inputs {wanted}, got {len(files)}")
        data: dict[str, Any] = {}
        for (node, name), path in zip(executor.dataset_assign.items(), files, strict=True):
            values = np.fromfile(path, data_type)
            variable = node.variable_instance
            if values.size != variable.size:
                examples = f", which are {variable.shape[0]} examples" if variable.shape else ""
                raise NetworkError(
                    f"expected {variable.size} numbers for {name!r}{examples}, got {values.size} in {path}"
                )
            data[name] = values
        feed(executor, data)
        found = evaluate(executor)
    written = []
    for i, (name, x) in enumerate(zip(executor.output_assign, found, strict=True)):
        if output is None:
            print(f"{name.name} {x.shape}:\n{x}")
            continue
        path_of = Path(f"{output}_0_{i}.bin")
        with replacing(path_of) as temporary:
            x.astype(np.float32).tofile(temporary)
        written.append(path_of)
    return written
