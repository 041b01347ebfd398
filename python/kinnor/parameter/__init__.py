"""Parameters: variables that parametric functions register under a path.

The process has one tree of parameters. Each thread or task has its own current scope in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from .. import _check, _core, modes
from .._core import CallError, ParameterError, Variable
from ..display import Parameters
from . import tree as tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from ..files.parameter_file import Entry, PathOrFile
    from ..grad_mode import no_grad as no_grad
    from ..initializer import Initializer
    from .records import Loaded as Loaded
    from .records import ParameterInfo as ParameterInfo
    from .tree import Scope

__all__ = [
    "Loaded",
    "ParameterError",
    "ParameterInfo",
    "clear_parameters",
    "get_current_parameter_scope",
    "get_parameter",
    "get_parameter_or_create",
    "get_parameters",
    "load_parameters",
    "no_grad",
    "parameter_scope",
    "pop_parameter",
    "save_parameters",
    "set_parameter",
]


saving_callbacks: list[Callable[[PathOrFile], object]] = []
"""Callbacks of `save_parameters`, called with the path or file after each write."""


def is_learned(variable: Variable) -> bool:
    """True for a parameter that a solver may change, even if it is frozen now; False for running statistics."""
    from .records import ParameterInfo

    info = variable.info
    return variable.need_grad or (isinstance(info, ParameterInfo) and info.is_learned)


# --- Scopes


class parameter_scope(tree.Entered, ContextDecorator, metaclass=modes.ScopeClass):
    """Register the parameters of a `with` block, or of a decorated function's calls, under a name.

    Entering returns the scope, a dict from names to variables and scopes.

    Args:
        name: Name relative to the outer scope. `a/b` is `b` in `a`; the empty name is the outer scope.
        scope: A scope to start from instead of the current one, returned by another `parameter_scope`.

    Raises:
        ParameterError: If `scope` is not a dict, or, on entering, if the name belongs to a parameter.

        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> nn.clear_parameters()
        >>> with nn.parameter_scope("encoder"):
        ...     y = PF.affine(nn.Variable((2, 3)), 4)
        >>> list(nn.get_parameters())
        ['encoder/affine/W', 'encoder/affine/b']
    """

    def __init__(self, name: str, scope: Scope | None = None) -> None:
        if scope is not None and not isinstance(scope, dict):
            raise ParameterError(f"parameter_scope: expected `scope` to be a dict, got {scope!r}")
        # Most names are a single step. Dynamic programs repeat this call, so it does little else.
        self.names = [name] if type(name) is str and name and "/" not in name else tree.split("parameter_scope", name)
        self.start = scope
        self.owners = []


def _this_scope() -> Callable[[], AbstractContextManager[object]]:
    """Returns a function that makes a `with` block enter the current scope again."""
    scope = tree.here()
    return lambda: parameter_scope("", scope)


modes.surroundings.append(_this_scope)


def get_current_parameter_scope() -> Scope:
    """The current scope of this thread.

    Returns:
        The dict from names to variables and scopes itself, not a copy.
    """
    return tree.here()


def get_parameters(params: Scope | None = None, path: str = "", grad_only: bool = True) -> Parameters:
    """All parameters of the current scope and its subscopes, in the order of registration.

    Args:
        params: A scope to use instead of the current one.
        path: Text to put before each name, with a slash between.
        grad_only: Whether to leave out parameters that need no gradient, such as running means.

    Returns:
        The registered variables by path. Printed, they are a table of names, shapes, types and sizes.
    """
    if params is not None and not isinstance(params, dict):
        raise CallError(f"get_parameters: expected `params` to be a scope or None, got {params!r}")
    path = _check.text("get_parameters", "path", path)
    with tree.lock:
        found = Parameters(tree.walk(tree.here() if params is None else params, path))
    if _check.flag("get_parameters", "grad_only", grad_only):
        return Parameters((key, variable) for key, variable in found.items() if variable.need_grad)
    return found


def clear_parameters() -> None:
    """Remove all parameters of the current scope and its subscopes."""
    with tree.lock:
        tree.here().clear()


# --- Single parameters


def get_parameter(key: str) -> Variable | None:
    """A registered parameter.

    Args:
        key: Path relative to the current scope.

    Returns:
        The registered variable itself, or None if there is none.

    Raises:
        ParameterError: If the path is empty or belongs to a scope.
    """
    with tree.lock:
        return tree.variable("get_parameter", key)


def pop_parameter(key: str) -> Variable | None:
    """Remove a parameter from the tree.

    Args:
        key: Path relative to the current scope.

    Returns:
        The variable that was registered, or None if there was none.

    Raises:
        ParameterError: If the path is empty or belongs to a scope.
    """
    with tree.lock:
        variable = tree.variable("pop_parameter", key)
        if variable is not None:
            scope, name = tree.find("pop_parameter", key)
            del scope[name]
        return variable


def set_parameter(key: str, param: Variable) -> None:
    """Register a variable as a parameter. It replaces an existing parameter of the same path.

    Args:
        key: Path relative to the current scope.
        param: The variable.

    Raises:
        TypeError: If `param` is not a variable.
        ParameterError: If the path is empty, passes through a parameter, or belongs to a scope.
    """
    if not isinstance(param, Variable):
        raise CallError(f"set_parameter: expected a Variable for {key!r}, got {param!r}")
    with tree.lock:
        tree.variable("set_parameter", key)
        tree.register("set_parameter", key, param)


def get_parameter_or_create(
    name: str,
    shape: Sequence[int] | None = None,
    initializer: Initializer | None = None,
    need_grad: bool = True,
    as_need_grad: bool | None = None,
) -> Variable:
    """A parameter for use in a graph. It is created and registered on first use.

    Args:
        name: Path relative to the current scope.
        shape: Shape. It is optional if the initializer is an array or the parameter exists.
        initializer: Function from a shape (a list) to values, or the values as an array, whose dtype is kept;
            zeros by default.
        need_grad: The registered parameter's `need_grad` from now on.
        as_need_grad: The returned variable's `need_grad`; by default the same. Under `no_grad` it is False.

    Returns:
        A variable without parent that shares values and gradient with the registered one. Its `name` is the last part
        of the path.

    Raises:
        ParameterError: If the parameter exists with another shape, or if shape and initializer do not fit. Also if the
            path is empty, passes through a parameter, or belongs to a scope.
    """
    wanted = need_grad if as_need_grad is None else as_need_grad
    # Fast path without the lock: the parameter exists and fits, as in nearly all calls.
    if type(name) is str and type(need_grad) is bool:
        used = _core.use_known_parameter(tree.here(), name, shape, need_grad, wanted)
        if used is not None:
            return used
    op = "get_parameter_or_create"
    with tree.lock:
        scope, last = tree.find(op, name)
        parameter = tree.at(op, scope, last, name)
        if parameter is None:
            parameter = _create(name, shape, initializer, need_grad)
            tree.register(op, name, parameter)
        elif shape is not None and tuple(shape) != parameter.shape:
            raise ParameterError(
                f"{op}: expected the shape {parameter.shape} of the existing parameter "
                f"{tree.full_path(scope, last)!r}, got {tuple(shape)}; "
                "clear_parameters() forgets all parameters"
            )
        elif parameter.need_grad != need_grad:
            from .records import ParameterInfo

            if isinstance(parameter.info, ParameterInfo) and parameter.info.is_frozen:
                wanted = False
            else:
                parameter.need_grad = need_grad
    return _core.use_parameter(parameter, wanted, last)


# --- Files


def save_parameters(path: PathOrFile, params: dict[str, Variable] | None = None, extension: str | None = None) -> None:
    """Save parameters with their order, dtype and `need_grad`. The file is replaced atomically.

    A `.protobuf` file holds all values in single precision.

    Args:
        path: Path that ends in `.safetensors`, `.h5` or `.protobuf`, or a file open for writing bytes. An open file
            is rewound to its start afterwards.
        params: Parameters by path; by default `get_parameters(grad_only=False)` of the current scope.
        extension: `.safetensors`, `.h5` or `.protobuf`, if `path` is a file or has no such ending.

    Raises:
        ParameterError: If the format is unknown or cannot hold a parameter, or if a name cannot be loaded again.
            Such names have empty parts, `.` or `..`, pass through another parameter, or have more than 128 levels or
            4,096 characters.
        NotImplementedError: If the format is not supported yet.
        OSError: If the file cannot be written.
    """
    from ..files import parameter_file  # Not on import, which it would make a third longer.

    if params is None:
        params = get_parameters(grad_only=False)
    given: Any = params
    if not isinstance(given, Mapping) or not all(isinstance(variable, Variable) for variable in given.values()):
        hint = "; state_dict() of a module has them" if callable(getattr(given, "named_parameters", None)) else ""
        if hasattr(path, "keys") and isinstance(given, str):
            hint = "; the path is the first argument"
        raise CallError(f"save_parameters: expected `params` to be Variables by path, got {_shown(given)}{hint}")
    entries = [parameter_file.Entry(key, _values(variable), variable.need_grad) for key, variable in params.items()]
    parameter_file.save(path, entries, extension)
    for callback in saving_callbacks:
        callback(path)


def _shown(given: Any) -> str:
    """A wrong argument in an error: text as it is, and the type of anything else."""
    return repr(given) if isinstance(given, str) else type(given).__name__


@overload
def load_parameters(
    path: PathOrFile,
    proto: None = None,
    needs_proto: Literal[False] = False,
    extension: str | None = None,
    *,
    strict: bool = True,
) -> Loaded: ...
@overload
def load_parameters(
    path: PathOrFile,
    proto: Any = None,
    needs_proto: bool = False,
    extension: str | None = None,
    *,
    strict: bool = True,
) -> Any: ...
def load_parameters(
    path: PathOrFile,
    proto: Any = None,
    needs_proto: bool = False,
    extension: str | None = None,
    *,
    strict: bool = True,
) -> Any:
    """Load parameters into the current scope. Existing parameters get the values, others are registered.

    Graphs that use an existing parameter see the loaded values. If loading fails, no parameter changes.

    Into a scope without parameters all are loaded. Otherwise the names in the file must be those in the scope, unless
    `strict` is False.

    Args:
        path: Path that ends in `.safetensors`, `.h5`, `.protobuf`, `.nnp`, `.nntxt` or `.prototxt`, or a file open for
            reading bytes. Of the last three only the parameters are loaded.
        proto: An `NNablaProtoBuf` of `kinnor.utils.nnabla_pb2` that gets the loaded parameters as well.
        needs_proto: Whether to make such a message.
        extension: `.safetensors`, `.h5` and so on, where `path` is a file or does not say it.
        strict: Whether names that only the file or only the scope has are an error. If False, the first become new
            parameters, and the others keep their values.

    Returns:
        The names that matched, those missing in the file, and those unexpected in it; or `proto` or the message that
        was made, if one was asked for.

    Raises:
        ParameterError: If the format is unknown, or if the file is malformed or declares more than it holds. If a name
            has more than 128 levels or 4,096 characters. If a shape differs, or if names differ and `strict` is set.
        NotImplementedError: If the format is one that is not supported yet.
        OSError: If the file cannot be read.
        MemoryError: If the values do not fit into memory.
    """
    from ..files import network_file

    op = "load_parameters"
    if needs_proto or proto is not None:
        from ..files import schema

        kind = schema.messages().NNablaProtoBuf
        proto = kind() if proto is None else proto
        if not isinstance(proto, kind):
            of_module = callable(getattr(proto, "named_parameters", None)) or hasattr(proto, "items")
            hint = "; module.load_parameters(path) loads the parameters of a module" if of_module else ""
            raise CallError(f"{op}: expected `proto` to be an NNablaProtoBuf, got {_shown(proto)}{hint}")
    entries = network_file.entries(path, extension)
    loaded = put(entries, op, strict=_check.flag(op, "strict", strict))
    if proto is None:
        return loaded
    from ..files import parameter_protobuf

    for piece in parameter_protobuf.pieces(entries):
        proto.MergeFromString(piece)
    return proto


def put(entries: list[Entry], op: str, strict: bool = False) -> Loaded:
    """Put the entries of a file into the current scope, into existing or new parameters: all entries or none.

    Args:
        entries: The result of a reader of `kinnor.files`.
        op: The name of the reading function, for errors.
        strict: True to refuse names that a scope with parameters lacks, and missing names.

    Returns:
        The names, compared with those in the scope before.

    Raises:
        ParameterError: If an existing parameter has another shape, if a name is invalid, or if names differ and
            `strict` is set.
        MemoryError: If the values do not fit into memory.
    """
    tree.check_paths(op, [entry.name for entry in entries])
    with tree.lock:
        loaded = _compared(entries)
        found = [(tree.variable(op, entry.name), entry) for entry in entries]
        for variable, entry in found:
            if variable is not None and variable.shape != entry.values.shape:
                raise ParameterError(
                    f"{op}: expected shape {variable.shape} for the existing parameter {entry.name!r}, "
                    f"got {entry.values.shape}; clear_parameters() forgets all parameters"
                )
        # Steps that can fail come first: new variables, then memory for the values of existing ones.
        if strict and loaded.matched + loaded.missing:
            _check_names(op, loaded)
        # All that can fail comes first: variables that are new, then memory for the values of the others.
        made = [Variable.from_numpy_array(entry.values) if variable is None else variable for variable, entry in found]
        _core.assign_together([(variable.data, entry.values) for variable, entry in found if variable is not None])
        for (known, entry), variable in zip(found, made, strict=True):
            if known is None:
                variable.info = _info(None, entry.need_grad)
                tree.register(op, entry.name, variable)
            variable.need_grad = entry.need_grad
    return loaded


def _compared(entries: list[Entry]) -> Loaded:
    """The names in a file and those in the current scope."""
    from .records import Loaded

    own = dict(tree.walk(tree.here(), ""))
    held = ["/".join(_check.split("load_parameters", entry.name)) for entry in entries]
    return Loaded(
        [name for name in held if name in own],
        [name for name in own if name not in held],
        [name for name in held if name not in own],
    )


def _check_names(op: str, loaded: Loaded) -> None:
    """Raises ParameterError if the loaded file lacks parameters or has unexpected ones."""
    differing = (("without", loaded.missing), ("with the unexpected", loaded.unexpected))
    told = [f"{how} {_check.listed(names)}" for how, names in differing if names]
    if told:
        raise ParameterError(
            f"{op}: expected a file with the parameters of this scope, got one {' and '.join(told)}; "
            "strict=False loads what matches"
        )


# --- Values


def _create(name: str, shape: Sequence[int] | None, initializer: Initializer | None, need_grad: bool) -> Variable:
    """A new variable with initial values.

    It has no memory in `skip_init`, or if another process of a pipeline has the values.
    """
    from ..placement import is_elsewhere, skips_init

    op = "get_parameter_or_create"
    if shape is None and not isinstance(initializer, np.ndarray):
        raise ParameterError(f"{op}: expected a shape or an array for the new parameter {name!r}, got none")
    if shape is not None:
        shape = [_check.whole(op, "shape", n) for n in shape]
    skips = callable(initializer) and skips_init.get()
    values = None if initializer is None or skips else _initial(op, name, shape, initializer)
    if values is None or is_elsewhere():  # The values were drawn all the same, so that all processes draw alike.
        variable = Variable(tuple(shape or ()) if values is None else values.shape, need_grad)
    else:
        variable = Variable.from_numpy_array(values, need_grad=need_grad)
    variable.info = _info(initializer, need_grad)
    return variable


def _info(initializer: Initializer | None, need_grad: bool) -> ParameterInfo:
    """The origin of a new parameter."""
    from .records import ParameterInfo

    return ParameterInfo(initializer, need_grad)


def _initial(op: str, name: str, shape: Sequence[int] | None, initializer: Initializer) -> NDArray[Any]:
    """The initializer's values, after a check of their shape."""
    if isinstance(initializer, np.ndarray):
        values = initializer
    elif callable(initializer):
        values = np.asarray(initializer(list(shape or ())))
    else:
        hint = "; kinnor.initializer has them, such as UniformInitializer()" if isinstance(initializer, str) else ""
        raise ParameterError(
            f"{op}: expected `initializer` of {name!r} to be a function or an array, got {initializer!r}{hint}"
        )
    if shape is not None and values.shape != tuple(shape):
        raise ParameterError(
            f"{op}: expected initial values of shape {tuple(shape)} for {name!r}, got shape {values.shape}"
        )
    return values


def _values(variable: Variable) -> NDArray[Any]:
    """A read-only view of a variable's values."""
    values: NDArray[Any] = variable.data.get_data("r")
    return values


if not TYPE_CHECKING:  # Type checkers see the names themselves.

    def __getattr__(name: str) -> Any:
        """Imports a class on first use."""
        if name == "no_grad":
            from ..grad_mode import no_grad

            return no_grad
        if name in ("Loaded", "ParameterInfo"):
            from . import records

            return getattr(records, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
