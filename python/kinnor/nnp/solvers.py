"""Solvers as messages: the type, the arguments in the message that NNabla has for it, and what it keeps.

Knows names, which follow from one another: `Adam` has its arguments in the field of type `AdamParameter`. Knows no
optimizers.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import parameter_protobuf, schema, solver_file, solver_protobuf
from ..files.network_file import NetworkError

if TYPE_CHECKING:
    from ..solvers import Solver

__all__ = ["fill", "learning_rate", "load_states", "read", "state_file"]

ALSO = {"SGD": "Sgd"}
"""Names that files of old versions have."""


@cache
def _holders() -> dict[str, str]:
    """The field of `Solver` that holds the arguments of a type."""
    fields = schema.messages().Solver.DESCRIPTOR.oneofs_by_name["parameter"].fields
    return {field.message_type.name.removesuffix("Parameter"): field.name for field in fields}


def fill(message: Any, solver: Solver) -> None:
    """Put type and arguments of a solver into its message.

    Args:
        message: A `Solver` message.
        solver: The solver.

    Raises:
        NetworkError: If NNabla's files have no place for it.
    """
    holder = _holders().get(solver.name)
    if holder is None:
        raise NetworkError(f"save: expected one of the solvers {list(_holders())}, got {solver.name}")
    message.type = solver.name
    held = getattr(message, holder)
    held.SetInParent()
    for field in held.DESCRIPTOR.fields:
        if field.name in solver.info:
            setattr(held, field.name, solver.info[field.name])


def read(message: Any) -> Solver:
    """The solver that a message describes.

    Args:
        message: A `Solver` message.

    Raises:
        NetworkError: If there is no such solver.
        RangeError: If an argument is out of range.
    """
    from .. import solvers

    kind = ALSO.get(message.type, message.type)
    holder = _holders().get(kind)
    if holder is None:
        raise NetworkError(f"load: expected one of the solvers {list(_holders())}, got {message.type!r}")
    held = getattr(message, holder)
    made: Solver = getattr(solvers, kind)(**{field.name: getattr(held, field.name) for field in held.DESCRIPTOR.fields})
    return made


def learning_rate(message: Any) -> float:
    """The learning rate at the start.

    Args:
        message: A `Solver` message with a type that is there.
    """
    held = getattr(message, _holders()[ALSO.get(message.type, message.type)])
    names = {field.name for field in held.DESCRIPTOR.fields}
    return float(next(getattr(held, name) for name in ("lr", "alpha", "eta") if name in names))


# --- What a solver keeps, as members of an archive


def state_file(name: str, solver: Solver, extension: str) -> tuple[str, bytes]:
    """Name and bytes of a member with what a solver keeps.

    Args:
        name: The name of the optimizer.
        solver: The solver.
        extension: `.h5` or `.protobuf`.

    Raises:
        NetworkError: If the format is another.
    """
    member = f"{name}_{solver.name}_optimizer{extension}.optimizer"
    if extension == ".protobuf":
        whole = schema.arrays().NNablaProtoBuf()
        optimizer = whole.optimizer.add(name=name)
        optimizer.solver.type = solver.name
        for key, state in solver._arrays().items():
            solver_protobuf.fill(optimizer, (key, *state))
        return member, whole.SerializeToString()
    if extension != ".h5":
        raise NetworkError(f"save: expected .h5 or .protobuf as `solver_state_format`, got {extension!r}")
    with tempfile.TemporaryDirectory(prefix="kinnor-") as folder:
        path = Path(folder, "states.h5")
        solver.save_states(path)
        return member, path.read_bytes()


def load_states(name: str, solver: Solver, members: dict[str, tuple[str, bytes]]) -> None:
    """Give a solver what an archive keeps of it, if it does.

    Args:
        name: The name of the optimizer.
        solver: The solver, with its parameters.
        members: Formats and bytes by name, as a reader of `kinnor.files.network_file` gives them.

    Raises:
        ParameterError: If the states are malformed or those of another solver.
        GraphError: If one is of a parameter that was not set.
    """
    for member, (extension, content) in members.items():
        if extension == ".h5" and member == f"{name}_{solver.name}_optimizer.h5.optimizer":
            solver._set_arrays(solver_file.read_h5(os.fspath(member), content))
        elif extension == ".protobuf":
            try:
                whole = parameter_protobuf.parse(schema.arrays().NNablaProtoBuf, content)
                for optimizer in whole.optimizer:
                    if optimizer.name == name:
                        found = solver_protobuf.states(optimizer)
                        solver._set_arrays({key: solver_file.State(t, arrays) for key, t, arrays in found})
            except (ValueError, OverflowError) as error:
                raise NetworkError(f"load: expected states of solvers, got {member!r}: {error}") from error
