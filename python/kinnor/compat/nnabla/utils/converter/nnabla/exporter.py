"""Writes a message with parameters as files of NNabla."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinnor.files import network_file, parameter_file, parameter_protobuf, schema
from kinnor.nnp import NetworkError

if TYPE_CHECKING:
    import os

    from kinnor.files.parameter_file import Entry

__all__ = ["NnpExporter", "parameters_in"]

PARAMETER_TYPES = ("protobuf", "h5", "included", "none")
"""How parameters are written: to a file of this format, into the network's file, or not at all."""


class NnpExporter:
    """Writes a message with parameters as a `.nnp` archive or as a folder of its files.

    Args:
        nnp: The result of an importer: an object with the message as `protobuf`.
        batch_size: Without effect, as in NNabla.
        parameter_type: Form of the parameters: a file `protobuf` or `h5`, `included` in the network's text, or `none`.
        force: Without effect, as in NNabla.

    Raises:
        NetworkError: If `parameter_type` has another value.
    """

    def __init__(self, nnp: Any, batch_size: int, parameter_type: str = "protobuf", force: bool = False) -> None:
        if parameter_type not in PARAMETER_TYPES:
            raise NetworkError(
                f"NnpExporter: expected `parameter_type` to be {' or '.join(PARAMETER_TYPES)}, got {parameter_type!r}"
            )
        self._nnp = nnp.protobuf
        self._kind = parameter_type

    def execute(self, path: str | os.PathLike[str]) -> None:
        """Write an archive, or the members of one into a folder.

        Args:
            path: Path of a `.nnp` file, or of an existing folder.

        Raises:
            NetworkError: If the path is neither.
            OSError: If a file cannot be written.
        """
        target = Path(path)
        network = schema.messages().NNablaProtoBuf()
        network.CopyFrom(self._nnp)
        if self._kind != "included":
            network.ClearField("parameter")
        entries = parameters_in(self._nnp) if self._kind in ("protobuf", "h5") else []
        extension = None if self._kind in ("included", "none") else f".{self._kind}"
        if target.is_dir():
            (target / "nnp_version.txt").write_text(f"{network_file.VERSION}\n")
            network_file.write(target / "network.nntxt", network)
            if extension is not None:
                parameter_file.save(target / f"parameter{extension}", entries)
        elif target.suffix.lower() == ".nnp":
            network_file.write_archive(target, network, entries, extension)
        else:
            raise NetworkError(f"NnpExporter: expected a folder or a name that ends in .nnp, got {str(target)!r}")


def parameters_in(proto: Any) -> list[Entry]:
    """The parameters of a message as entries of a parameter file.

    Args:
        proto: An `NNablaProtoBuf`.
    """
    whole = schema.messages().NNablaProtoBuf()
    whole.parameter.extend(proto.parameter)
    return [parameter_file.Entry(*found) for found in parameter_protobuf.decode(whole.SerializeToString())]
