"""Solvers as messages: the type, the arguments in NNabla's message for the type, and the states.

All names follow from the type: the arguments of `Adam` are in the field of type `AdamParameter`. No knowledge of
optimizers.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import parameter_protobuf, schema, solver_file, solver_protobuf
from ...files.network_file import NetworkError

if TYPE_CHECKING:
    from ...solvers import Solver

__all__ = ["fill", "learning_rate", "load_states", "read", "state_file"]

ALSO = {"SGD": "Sgd"}
"""Names in files of old versions, and their current names."""


@cache
def _holders() -> dict[str, str]:
    """The field of `Solver` with the arguments of each type."""
    fields = schema.messages().Solver.DESCRIPTOR.oneofs_by_name["parameter"].fields
    return {field.message_type.name.removesuffix("Parameter"): field.name for field in fields}


def fill(message: Any, solver: Solver) -> None:
    """Write type and arguments of a solver into a message.

    Args:
        message: A `Solver` message.
        solver: The solver.

    Raises:
        NetworkError: If NNabla's files cannot store the solver.
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
    """Create a solver from a message.

    Args:
        message: A `Solver` message.

    Raises:
        NetworkError: If the type of the solver is unknown.
        RangeError: If an argument is out of range.
    """
    from ... import solvers

    kind = ALSO.get(message.type, message.type)
    holder = _holders().get(kind)
    if holder is None:
        raise NetworkError(f"load: expected one of the solvers {list(_holders())}, got {message.type!r}")
    held = getattr(message, holder)
    made: Solver = getattr(solvers, kind)(**{field.name: getattr(held, field.name) for field in held.DESCRIPTOR.fields})
    return made


def learning_rate(message: Any) -> float:
    """The initial learning rate.

    Args:
        message: A `Solver` message of a known type.
    """
    held = getattr(message, _holders()[ALSO.get(message.type, message.type)])
    names = {field.name for field in held.DESCRIPTOR.fields}
    return float(next(getattr(held, name) for name in ("lr", "alpha", "eta") if name in names))


# --- Solver states as members of an archive


def state_file(name: str, solver: Solver, extension: str) -> tuple[str, bytes]:
    """Write the states of a solver as a member of an archive: name and bytes.

    Args:
        name: The name of the optimizer.
        solver: The solver.
        extension: `.h5` or `.protobuf`.

    Raises:
        NetworkError: If `extension` is another format.
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
    """Load the states of a solver from the members of an archive, if they contain any.

    Args:
        name: The name of the optimizer.
        solver: The solver, with its parameters.
        members: Format and bytes by name, as from a reader of `kinnor.files.network_file`.

    Raises:
        ParameterError: If the states are malformed or belong to another solver.
        GraphError: If a state belongs to a parameter that the solver does not have.
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
