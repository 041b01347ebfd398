"""The core in Rust: variables, arrays, functions, hooks and modes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, final, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from typing_extensions import Self, disjoint_base

from .context import Context

_ArrayT = TypeVar("_ArrayT", bound=NdArray)
_VariableT = TypeVar("_VariableT", bound=Variable)

_Scalar: TypeAlias = float | np.number[Any]
_Shape: TypeAlias = int | Iterable[int]
_Hook: TypeAlias = Callable[[Function], object]
_SolverHook: TypeAlias = Callable[[], object]
_Flags: TypeAlias = list[tuple[bool, bool]]

__version__: str
functions: ModuleType

class Error(Exception):
    """Base class of all errors of this library."""

class ShapeError(Error, ValueError, RuntimeError):
    """The shape of an array does not fit the operation or the other arrays."""

class DTypeError(Error, TypeError, RuntimeError):
    """The element type of an array does not fit the operation."""

class AxisError(Error, IndexError, ValueError, RuntimeError):
    """An array has no axis of this number."""

class ArgumentError(Error, ValueError, TypeError, RuntimeError):
    """An argument of an operation is out of range."""

class CallError(Error, TypeError):
    """A call has arguments of the wrong number or type."""

class RangeError(Error, ValueError, RuntimeError):
    """A value is none of the allowed ones."""

class IndexRangeError(Error, IndexError, RuntimeError):
    """An index is outside of the array."""

class GraphError(Error, RuntimeError):
    """The state of the graph does not allow the call."""

class ClearedError(GraphError):
    """A value that is read was cleared."""

class ModifiedError(GraphError):
    """A value that a gradient reads was changed after the forward run."""

class NotComputedError(GraphError):
    """An output is read that no run of its function has computed yet."""

class GraphFreedError(GraphError):
    """The graph freed its values when it was differentiated."""

class RecomputeError(GraphError):
    """A recomputation gave another result than the first one."""

class ParameterError(Error, KeyError, ValueError):
    """A parameter does not exist or does not fit."""

class BudgetError(Error, MemoryError):
    """A memory budget is too small. `least` is the number of bytes that suffices."""

    least: int

class UnsupportedError(Error, NotImplementedError):
    """A feature or combination that Kinnor does not support."""

class InternalError(RuntimeError, Error):
    """A defect of Kinnor: please report it."""

@disjoint_base
class NdArray:
    """An array of numbers outside of any graph. Several handles may share its memory. Functions on it run eagerly."""

    __array_ufunc__: ClassVar[None]
    def __new__(cls, *shape: _Shape, **named: Any) -> Self: ...
    def __init__(self, *shape: _Shape, **named: Any) -> None: ...
    @staticmethod
    def from_numpy_array(nparr: ArrayLike) -> NdArray:
        """An array with a copy of the elements and the type of a NumPy array."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
    @property
    def size(self) -> int:
        """Number of elements."""
    @property
    def ndim(self) -> int:
        """Number of axes."""
    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each axis."""
    @property
    def dtype(self) -> type[np.generic]:
        """Type of the elements as NumPy names it."""
    @property
    def data(self) -> NDArray[Any]:
        """The elements as a NumPy array that shares them, for reading and writing."""
    @data.setter
    def data(self, value: ArrayLike | NdArray) -> None: ...
    @property
    def zeroing(self) -> bool:
        """True if the last write was `zero()`."""
    @property
    def modification_count(self) -> int:
        """1 if elements were written since the memory was allocated or cleared, else 0.

        A part that `narrow` made counts its own writes since the whole array was filled.
        """
    @property
    def clear_called(self) -> bool:
        """True if the memory was freed and no element was written since."""
    def size_from_axis(self, axis: int = -1) -> int:
        """Number of elements from an axis on."""
    def view(self, shape: _Shape) -> NdArray:
        """The same elements under another shape."""
    def data_ptr(self, dtype: DTypeLike, ctx: Context | None = None, write_only: bool = False) -> int:
        """Address of the elements, converted to a type that becomes the type of the array."""
    @overload
    def cast(self, dtype: DTypeLike, ctx: None = None) -> NDArray[Any]:
        """Converts the array to `dtype` and returns a NumPy array that shares its elements."""
    @overload
    def cast(self, dtype: DTypeLike, ctx: Context) -> None: ...
    def get_data(self, mode: Literal["r", "rw", "w"] = "rw", dtype: DTypeLike | None = None) -> NDArray[Any]:
        """The elements as a NumPy array that shares them."""
    def zero(self) -> None:
        """Sets every element to zero lazily, without touching memory."""
    def fill(self, value: float) -> None:
        """Sets every element to `value` lazily, without touching memory."""
    def clear(self) -> None:
        """Frees the memory.

        NumPy arrays that share it keep their values. The array reads as NaN until it is written again; reading integers
        or truth values raises ClearedError.
        """
    def copy_from(self, arr: NdArray, use_current_context: bool = True) -> Self:
        """Copies the elements of another array into this one."""
    def narrow(self, dim: int, start: int, length: int) -> NdArray:
        """Part of the array along its first axis, on the same memory."""
    def bool_fill(self, mask: NdArray | Variable, value: float) -> Self:
        """Sets the elements to `value` where `mask` is not zero."""
    def masked_fill(self, mask: NdArray | Variable, value: float) -> Self:
        """Same as `bool_fill`."""
    def item(self) -> float:
        """The only element as a Python number."""
    def numpy(self) -> NDArray[Any]:
        """The elements as a NumPy array that shares them."""
    def astype(self, dtype: DTypeLike) -> NdArray:
        """The values in another type: an output to which gradients flow for floating-point types."""
    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> NdArray:
        """Sum over axes, as `functions.sum`."""
    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> NdArray:
        """Mean over axes, as `functions.mean`."""
    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> NdArray:
        """Maximum over axes, as `functions.max`."""
    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> NdArray:
        """Minimum over axes, as `functions.min`."""
    @property
    def T(self) -> NdArray:
        """The axes in reverse order."""
    def __len__(self) -> int: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def _borrow(self, nparr: ArrayLike, writable: bool = False) -> None:
        """Uses the memory of a NumPy array as its own.

        Copies it if its layout differs or it is read-only, unless `writable` says that writing is allowed.
        """
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __getitem__(self, key: Any, /) -> NdArray: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __abs__(self) -> NdArray: ...
    def __float__(self) -> float: ...
    def __format__(self, form: str, /) -> str: ...
    def __int__(self) -> int: ...
    @overload
    def __round__(self, digits: None = None) -> int: ...
    @overload
    def __round__(self, digits: int) -> float: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _of_class(self, cls: type[_ArrayT]) -> _ArrayT:
        """Another object for the same elements, of a derived class."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any) -> Self: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __pos__(self) -> Self: ...
    def __neg__(self) -> NdArray: ...
    def __add__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __radd__(self, o: NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __sub__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __rsub__(self, o: NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __mul__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __rmul__(self, o: NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __truediv__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __rtruediv__(self, o: NDArray[Any] | _Scalar, /) -> NdArray: ...
    def __pow__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, modulo: None = None, /) -> NdArray: ...
    def __rpow__(self, o: NDArray[Any] | _Scalar, modulo: None = None, /) -> NdArray: ...
    def __matmul__(self, o: NdArray | Variable | NDArray[Any], /) -> NdArray: ...
    def __rmatmul__(self, o: NDArray[Any], /) -> NdArray: ...
    def __iadd__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> Self: ...
    def __isub__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> Self: ...
    def __imul__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> Self: ...
    def __itruediv__(self, o: NdArray | Variable | NDArray[Any] | _Scalar, /) -> Self: ...

@disjoint_base
class Variable:
    """A variable in a computation graph: values, their gradient, and the function that computes them."""

    __array_ufunc__: ClassVar[None]
    info: Any
    def __new__(cls, shape: _Shape | None = None, need_grad: bool | None = None, info: Any = None) -> Self: ...
    def __init__(self, shape: _Shape | None = None, need_grad: bool | None = None, info: Any = None) -> None: ...
    @staticmethod
    def from_numpy_array(data: ArrayLike, grad: ArrayLike | None = None, need_grad: bool | None = None) -> Variable:
        """A variable with a copy of a NumPy array as its values, in the same type."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
    @property
    def size(self) -> int:
        """Number of elements."""
    @property
    def ndim(self) -> int:
        """Number of axes."""
    @property
    def rank(self) -> int:
        """The longest path to it from a variable without parent."""
    @property
    def need_grad(self) -> bool:
        """True if gradients flow to it: the value that was set, else a consequence of its parent."""
    @need_grad.setter
    def need_grad(self, on: bool | None) -> None: ...
    @property
    def requires_grad(self) -> bool:
        """True if gradients flow to it, like `need_grad`.

        Only leaves of floating-point numbers accept an assignment.
        """
    @requires_grad.setter
    def requires_grad(self, on: bool) -> None: ...
    def requires_grad_(self, mode: bool = True) -> Self:
        """Sets `requires_grad` and returns this variable."""
    @property
    def is_leaf(self) -> bool:
        """True if it is a leaf: no function computes it from variables that require grad."""
    @property
    def grad_fn(self) -> Function | None:
        """The function that computes it, or None if it does not require grad."""
    def retain_grad(self) -> None:
        """Makes `autodiff.backward` add to the gradient of this variable too, although a function computes it."""
    @property
    def retains_grad(self) -> bool:
        """True if `retain_grad` was called and a function computes it."""
    def register_hook(self, hook: Callable[[Variable], Variable | None]) -> HookHandle:
        """Registers a function to call with the gradient of this variable.

        It is called once in each backward run, when all contributions have been added up and before the gradient is
        used.
        """
    def register_post_accumulate_grad_hook(self, hook: Callable[[Variable], object]) -> HookHandle:
        """Registers a function to call with this leaf after a backward run has added to its gradient."""
    @property
    def has_grad(self) -> bool:
        """True if a gradient was written since the variable was made or its gradient was zeroed or set to None."""
    @property
    def grad_variable(self) -> Variable | None:
        """Its gradient as a Variable that shares the memory, or None if there is none.

        After a pass with `create_graph` it can be differentiated.
        """
    def detach(self) -> Variable:
        """A variable on the same data that takes no gradient, as `get_unlinked_variable(need_grad=False)`."""
    @property
    def recompute(self) -> bool:
        """True if its data may be dropped after use and recomputed for the backward run."""
    @recompute.setter
    def recompute(self, on: bool) -> None: ...
    @property
    def persistent(self) -> bool:
        """True if runs must never clear its memory."""
    @persistent.setter
    def persistent(self, on: bool) -> None: ...
    @property
    def name(self) -> str:
        """Its name. An empty string if it has none."""
    @name.setter
    def name(self, name: str | None) -> None: ...
    @property
    def data(self) -> NdArray:
        """Its values as an NdArray that shares them.

        Assigning an NdArray shares its elements; anything else is copied.
        """
    @data.setter
    def data(self, value: NdArray | ArrayLike) -> None: ...
    @property
    def grad(self) -> NdArray:
        """Its gradient as an NdArray that shares it.

        Assigning an NdArray shares its elements, assigning None frees the memory, and anything else is copied.
        """
    @grad.setter
    def grad(self, value: NdArray | ArrayLike | None) -> None: ...
    @property
    def d(self) -> NDArray[Any]:
        """Its values as a NumPy array that shares them.

        Assigning an array copies it, assigning a number fills the values.
        """
    @d.setter
    def d(self, value: ArrayLike | NdArray) -> None: ...
    @property
    def g(self) -> NDArray[Any]:
        """Its gradient as a NumPy array that shares it.

        Assigning an array copies it, assigning a number fills the gradient.
        """
    @g.setter
    def g(self, value: ArrayLike | NdArray) -> None: ...
    @property
    def parent(self) -> Function | None:
        """The function that computes it, or None.

        Assigning None disconnects it from the function. Assigning a function makes it the output of that function that
        shares its data.
        """
    @parent.setter
    def parent(self, parent: Function | None) -> None: ...
    @property
    def function_references(self) -> list[Function]:
        """The live functions that read it, each once."""
    @property
    def get_number_of_references(self) -> int:
        """Number of live Variables that share its data."""
    @property
    def _prohibit_clear_data(self) -> bool:
        """True if runs must not clear its data: some variable that shares the memory in place forbids it."""
    def _clear_parent(self) -> None:
        """Disconnects this variable from the function that computes it."""
    def _may_be_overwritten(self) -> bool:
        """True if an assignment by index may overwrite its memory, because nothing else reads it."""
    def _may_take_copy(self) -> None:
        """Allows the function that computes it in place to work on a copy, if its input is needed later in the run."""
    def _split_off(self) -> Variable:
        """Moves the current value and its consumers to a new variable, which is returned.

        First half of an assignment by index.
        """
    def size_from_axis(self, axis: int = -1) -> int:
        """Number of elements from an axis on."""
    def reset_shape(self, shape: _Shape, force: bool = False) -> None:
        """Changes the shape of the variable."""
    @overload
    def reshape(self, shape: _Shape, unlink: bool = False) -> Variable:
        """The same elements in another shape."""
    @overload
    def reshape(self, *shape: int, unlink: bool = False) -> Variable: ...
    def get_unlinked_variable(self, need_grad: bool | None = None) -> Variable:
        """A variable without parent that shares data and gradient."""
    def _handed_out(self) -> NDArray[Any]:
        """Its values as a NumPy array that the caller owns, without a copy if possible.

        The next run writes to other memory. Until then, the variable shows what the caller writes.
        """
    def unlinked(self, need_grad: bool | None = None) -> Variable:
        """Deprecated: use `get_unlinked_variable`."""
    def create_deep_copy(self, context: Context | None = None, copy_grad: bool = True) -> Variable:
        """A new variable with a copy of the values and, if `copy_grad` is set, of the gradient."""
    def rewire_on(self, var: Variable) -> None:
        """Replaces another variable in the graph: its parent computes this variable from now on."""
    def no_grad(self) -> Variable:
        """A copy of this graph on parameters that need no gradient. This graph does not change."""
    def forward(
        self,
        clear_buffer: bool = False,
        clear_no_need_grad: bool = False,
        function_pre_hook: _Hook | None = None,
        function_post_hook: _Hook | None = None,
        memory_budget: int | None = None,
    ) -> None:
        """Computes this variable. Each function above it runs once."""
    def backward(
        self,
        grad: NdArray | ArrayLike | None = 1,
        clear_buffer: bool = False,
        communicator_callbacks: CommunicatorBackwardCallback | Sequence[CommunicatorBackwardCallback] | None = None,
        function_pre_hook: _Hook | None = None,
        function_post_hook: _Hook | None = None,
    ) -> None:
        """Propagates gradients from this variable to all variables that it was computed from.

        Its own gradient does not change.
        """
    def visit(self, f: Callable[[Function], object]) -> None:
        """Calls `f` with each function above this variable, inputs before outputs."""
    def visit_check(self, f: Callable[[Function], object]) -> bool:
        """Like `visit`, but stops and returns True as soon as `f` returns a true value."""
    def clear_all_graph_links(self) -> None:
        """Disconnects this variable and every variable above it from the functions that compute them."""
    def apply(self, **kwargs: Any) -> Self:
        """Sets attributes and returns this variable."""
    def bool_fill_(self, mask: NdArray | Variable, value: float) -> Variable:
        """Replaces elements in place by `value` where `mask` is not zero. Returns the resulting variable."""
    def masked_fill_(self, mask: NdArray | Variable, value: float) -> Variable:
        """Same as `bool_fill_`."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values as NumPy names it: `float32` for a variable that was not written to."""
    def item(self) -> float:
        """The only element as a Python number."""
    def numpy(self) -> NDArray[Any]:
        """The elements as a NumPy array that shares them."""
    def astype(self, dtype: DTypeLike) -> Variable:
        """The values in another type: an output to which gradients flow for floating-point types."""
    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Variable:
        """Sum over axes, as `functions.sum`."""
    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Variable:
        """Mean over axes, as `functions.mean`."""
    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Variable:
        """Maximum over axes, as `functions.max`."""
    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Variable:
        """Minimum over axes, as `functions.min`."""
    @property
    def T(self) -> Variable:
        """The axes in reverse order."""
    def __len__(self) -> int: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __getitem__(self, key: Any, /) -> Variable: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __bool__(self) -> bool: ...
    def __abs__(self) -> Variable: ...
    def __float__(self) -> float: ...
    def __format__(self, form: str, /) -> str: ...
    def __int__(self) -> int: ...
    @overload
    def __round__(self, digits: None = None) -> int: ...
    @overload
    def __round__(self, digits: int) -> float: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _of_class(self, cls: type[_VariableT]) -> _VariableT:
        """Another object for the same variable, of a derived class."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any) -> Self: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __pos__(self) -> Self: ...
    def __neg__(self) -> Variable: ...
    @overload
    def __add__(self, o: NdArray, /) -> NdArray: ...
    @overload
    def __add__(self, o: Variable | NDArray[Any] | _Scalar, /) -> Variable: ...
    def __radd__(self, o: NDArray[Any] | _Scalar, /) -> Variable: ...
    @overload
    def __sub__(self, o: NdArray, /) -> NdArray: ...
    @overload
    def __sub__(self, o: Variable | NDArray[Any] | _Scalar, /) -> Variable: ...
    def __rsub__(self, o: NDArray[Any] | _Scalar, /) -> Variable: ...
    @overload
    def __mul__(self, o: NdArray, /) -> NdArray: ...
    @overload
    def __mul__(self, o: Variable | NDArray[Any] | _Scalar, /) -> Variable: ...
    def __rmul__(self, o: NDArray[Any] | _Scalar, /) -> Variable: ...
    @overload
    def __truediv__(self, o: NdArray, /) -> NdArray: ...
    @overload
    def __truediv__(self, o: Variable | NDArray[Any] | _Scalar, /) -> Variable: ...
    def __rtruediv__(self, o: NDArray[Any] | _Scalar, /) -> Variable: ...
    @overload
    def __pow__(self, o: NdArray, modulo: None = None, /) -> NdArray: ...
    @overload
    def __pow__(self, o: Variable | NDArray[Any] | _Scalar, modulo: None = None, /) -> Variable: ...
    def __rpow__(self, o: NDArray[Any] | _Scalar, modulo: None = None, /) -> Variable: ...
    @overload
    def __matmul__(self, o: NdArray, /) -> NdArray: ...
    @overload
    def __matmul__(self, o: Variable | NDArray[Any], /) -> Variable: ...
    def __rmatmul__(self, o: NDArray[Any], /) -> Variable: ...

@final
class FunctionInfo:
    """Attributes of a function that do not depend on the engine: type name, arguments, tags."""

    @property
    def type_name(self) -> str:
        """Name of the type: `LeakyReLU`."""
    @property
    def args(self) -> dict[str, Any]:
        """The constant arguments."""
    @property
    def tags(self) -> dict[str, str]:
        """Tags set by the user."""

@disjoint_base
class Function:
    """A function of a graph: an operation with its inputs and outputs."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    @property
    def name(self) -> str:
        """Name of the operation's type, or of the user's function."""
    @property
    def info(self) -> FunctionInfo:
        """Type name, arguments and tags."""
    @property
    def args(self) -> dict[str, Any]:
        """The constant arguments by name."""
    @property
    def random_position(self) -> int | None:
        """Count of random numbers that its runs have drawn, or None if it draws none.

        A function with a seed of its own, such as `F.dropout(x, seed=7)`, continues its sequence there.
        """
    @random_position.setter
    def random_position(self, position: int) -> None: ...
    @property
    def progress(self) -> bytes | None:
        """The counts and values that its runs keep for later runs, as bytes for a checkpoint.

        None if its results depend only on its inputs and on random numbers.
        """
    @progress.setter
    def progress(self, progress: bytes) -> None: ...
    @property
    def arguments(self) -> dict[str, Any]:
        """Same as `args`."""
    @property
    def tags(self) -> dict[str, str]:
        """The user's tags by key. Assign a dict of strings to change them."""
    @tags.setter
    def tags(self, tags: dict[str, str]) -> None: ...
    @property
    def inputs(self) -> list[Variable]:
        """The inputs that were given."""
    @property
    def outputs(self) -> list[Variable]:
        """The outputs."""
    @property
    def rank(self) -> int:
        """The longest path to it from a variable without parent."""
    @property
    def need_grad(self) -> bool:
        """True if gradients flow through it, as determined when it was made or by the last forward run."""
    @property
    def context(self) -> Context:
        """The context in which it computes."""
    @property
    def context_number(self) -> int:
        """The number of this context. Equal contexts have the same number."""
    def min_outputs(self) -> int:
        """Least number of outputs."""
    def inplace_data(self, i: int) -> int:
        """Memory that an output shares with input `i`: 0 for none, 1 for equal values, 2 for overwritten values."""
    def inplace_data_with(self, i: int) -> int | None:
        """The number of the output that shares memory with input `i`, or None."""
    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """True if the gradient of input `i` reads the data of input `j`."""
    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """True if the gradient of input `i` reads the data of output `o`."""
    def auto_grad_depends_input_data(self, i: int, j: int) -> bool:
        """Like `grad_depends_input_data`, for the gradient built as a graph."""
    def auto_grad_depends_output_data(self, i: int, o: int) -> bool:
        """Like `grad_depends_output_data`, for the gradient built as a graph."""
    def need_setup_recompute(self, o: int) -> bool:
        """True if recomputing output `o` must repeat random numbers."""
    def setup_recompute(self, inputs: Iterable[Variable], outputs: Iterable[Variable]) -> None:
        """Announces that the next forward run will be recomputed.

        Does nothing: every run can be. Exists for NNabla programs.
        """
    def set_active_input_mask(self, mask: Iterable[bool]) -> None:
        """Selects the inputs that a function of type AddN or MulN reads from now on.

        The other inputs, and the functions that compute only them, do not run and get no gradient. Run forward before
        the next backward run.
        """
    def setup(self, inputs: Iterable[Variable], outputs: Iterable[Variable]) -> None:
        """Infers the shapes of the outputs from the shapes of the inputs, and sets them."""
    def forward(self, inputs: Iterable[Variable], outputs: Iterable[Variable]) -> None:
        """Computes the outputs from the inputs."""
    def recompute(self, inputs: Iterable[Variable], outputs: Iterable[Variable]) -> None:
        """Computes the outputs again, with the same random numbers and without side effects."""
    def backward(
        self, inputs: Iterable[Variable], outputs: Iterable[Variable], accum: Sequence[bool] | None = None
    ) -> None:
        """Computes the gradients of the inputs from the gradients of the outputs."""
    def __call__(
        self,
        *inputs: Variable,
        n_outputs: int = -1,
        auto_forward: bool | None = None,
        outputs: Sequence[NdArray | None] | None = None,
    ) -> Any: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class FunctionVariable:
    """An input or output as the methods of a user-defined operation get it: shape, values and gradient."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
    @property
    def size(self) -> int:
        """Number of elements."""
    @property
    def ndim(self) -> int:
        """Number of axes."""
    @property
    def data(self) -> NdArray:
        """The values as an NdArray that shares them."""
    @property
    def grad(self) -> NdArray:
        """The gradient as an NdArray that shares it."""
    @property
    def d(self) -> NDArray[Any]:
        """The values as a NumPy array that shares them. Assigning writes into it."""
    @d.setter
    def d(self, value: ArrayLike) -> None: ...
    @property
    def g(self) -> NDArray[Any]:
        """The gradient as a NumPy array that shares it. Assigning writes into it."""
    @g.setter
    def g(self, value: ArrayLike) -> None: ...
    def reset_shape(self, shape: _Shape, force: bool = False) -> None:
        """Gives it another shape."""

@disjoint_base
class PythonFunction:
    """Base class of operations written in Python. Override its methods, then call an object of it as a function."""

    ctx: Context | None
    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    def __init__(self, ctx: Context | None = None, *_args: Any, **_kwargs: Any) -> None: ...
    @property
    def name(self) -> str:
        """Name of the operation. By default the name of the class."""
    def min_outputs(self) -> int:
        """Number of outputs."""
    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Checks the inputs and sets the shapes of the outputs by `reset_shape(shape, True)`."""
    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Writes the values of the outputs."""
    def backward_impl(
        self,
        inputs: list[FunctionVariable],
        outputs: list[FunctionVariable],
        propagate_down: list[bool],
        accum: list[bool],
    ) -> None:
        """Writes the gradient of each input for which `propagate_down` is true, adding to it where `accum` is true."""
    def recompute_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> Any:
        """Recomputes the values of the outputs after they were dropped, without side effects.

        By default calls `forward_impl`.
        """
    def gradient_impl(
        self,
        inputs: list[Variable],
        outputs: list[Variable],
        grad_outputs: list[Variable],
        propagate_down: list[bool],
    ) -> Sequence[Variable | None]:
        """The gradient as a graph, for `kinnor.grad` and gradients of gradients."""
    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """True if the gradient of input `i` reads the values of output `o`."""
    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """True if the gradient of input `i` reads the values of input `j`."""
    def auto_grad_depends_input_data(self, i: int, j: int) -> bool:
        """True if `gradient_impl` reads input `j` for the gradient of input `i`.

        Adds to the reads of `backward_impl`.
        """
    def auto_grad_depends_output_data(self, i: int, o: int) -> bool:
        """True if `gradient_impl` reads output `o` for the gradient of input `i`.

        Adds to the reads of `backward_impl`.
        """
    def inplace_data(self, i: int) -> int:
        """Memory that an output shares with input `i`: 0 for none, 1 for equal values, 2 for overwritten values."""
    def inplace_data_with(self, i: int) -> int:
        """The number of the output that shares the memory of input `i`, if one does."""
    def overwrite_input_data_in_forward(self, i: int) -> bool:
        """True if `forward_impl` writes to input `i`, as for running statistics."""
    def prohibit_clear_input_buffers(self) -> bool:
        """True if runs must not clear the inputs."""
    def __call__(
        self,
        *inputs: Variable | NdArray,
        n_outputs: int = -1,
        auto_forward: bool | None = None,
        outputs: Sequence[NdArray | None] | None = None,
    ) -> Any: ...

@disjoint_base
class Solver:
    """A solver: an update rule, its parameters and their states."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @property
    def name(self) -> str:
        """Name of the solver."""
    @property
    def info(self) -> dict[str, Any]:
        """The arguments that it was made with. Under NNabla's names, numbers are rounded to single precision."""
    def set_parameters(
        self, param_dict: Mapping[str, Variable], reset: bool = True, retain_state: bool = False
    ) -> None:
        """Registers parameters to update."""
    def remove_parameters(self, keys: Iterable[str]) -> None:
        """Removes parameters and their states."""
    def clear_parameters(self) -> None:
        """Removes all parameters and their states."""
    def get_parameters(self) -> dict[str, Variable]:
        """The parameters."""
    def _states(self) -> dict[str, tuple[int, dict[str, NdArray]]]:
        """Number of updates and state arrays by name, for each parameter. `get_states` converts them for users."""
    def _set_states(self, states: dict[str, tuple[int, dict[str, NdArray]]]) -> None:
        """Copies states from the form of `_states`."""
    def learning_rate(self) -> float:
        """The learning rate that was set. Under NNabla's names, it is rounded to single precision."""
    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the learning rate of later updates."""
    def zero_grad(self) -> None:
        """Sets all gradients to zero lazily. Updates skip a parameter until a backward run writes its gradient."""
    def weight_decay_is_fused(self) -> bool:
        """True if weight decay is part of an update instead of being added to gradients."""
    def update(self, update_pre_hook: _SolverHook | None = None, update_post_hook: _SolverHook | None = None) -> None:
        """Moves each parameter by one step."""
    def weight_decay(
        self, decay_rate: float, pre_hook: _SolverHook | None = None, post_hook: _SolverHook | None = None
    ) -> None:
        """Adds `decay_rate` times the values to the gradients.

        If decay is fused, the next update uses this rate instead.
        """
    def clip_grad_by_norm(
        self, clip_norm: float, pre_hook: _SolverHook | None = None, post_hook: _SolverHook | None = None
    ) -> None:
        """Scales each gradient whose L2 norm exceeds `clip_norm` down to that norm."""
    def clip_grad_by_global_norm(self, max_norm: float) -> float:
        """Scales all gradients down to a common L2 norm of `max_norm`, if it is larger."""
    def scale_grad(
        self, scale: float, pre_hook: _SolverHook | None = None, post_hook: _SolverHook | None = None
    ) -> None:
        """Multiplies the gradients by `scale`."""
    def check_inf_grad(self, pre_hook: _SolverHook | None = None, post_hook: _SolverHook | None = None) -> bool:
        """True if any gradient has an infinite element."""
    def check_nan_grad(self, pre_hook: _SolverHook | None = None, post_hook: _SolverHook | None = None) -> bool:
        """True if any gradient has a NaN element."""
    def check_inf_or_nan_grad(self, pre_hook: _SolverHook | None = None, post_hook: _SolverHook | None = None) -> bool:
        """True if any gradient has an infinite or NaN element."""

@final
class HookHandle:
    """A registered hook, with a method to remove it."""

    def remove(self) -> None:
        """Removes the hook. A second call does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...

class CommunicatorBackwardCallback:
    """Receives the progress of a backward run. Subclass it and pass an object as `communicator_callbacks`."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    def on_finish_function_backward(self, f: Function) -> None:
        """Called after the backward run of each function."""
    def on_finish_backward(self) -> None:
        """Called once, at the end of the backward run."""

def _solvers() -> list[tuple[str, str, list[tuple[str, str, Any]]]]:
    """Name, docstring and arguments of every solver."""

def auto_forward_mode() -> bool:
    """True if functions run as soon as they are built."""

def check_errors_at_drop() -> None:
    """Raises the first error that occurred while a variable was dropped since the last call."""

def check_saved() -> str:
    """The reaction of a backward run to values that changed since the forward run: `ignore`, `warn` or `raise`."""

def clear_memory_cache() -> None:
    """Returns cached free memory to the system."""

def configuration() -> dict[str, Any]:
    """Properties of the platform by name: instruction sets, threads, memory and build options."""

def context_mode() -> int:
    """Number of the context in which functions are built now."""

def context_parts(number: int) -> tuple[list[str], str, str]:
    """The parts of the context with this number: backend, array_class, device_id."""

def count_onnx_nodes(content: bytes, most: int) -> int:
    """Counts the nodes of an ONNX file."""

def declarations() -> list[tuple[str, str, list[tuple[str, str]], list[tuple[str, str, str, str | None]], str]]:
    """The declarations of all operations, for stubs, docs and tests."""

def dialect() -> str:
    """The dialect of the process: "native" or "nnabla"."""

def execution_order() -> str:
    """The order of forward runs: "rank" or "depth_first"."""

def set_up_all(variables: Iterable[Variable], since: int | None = None) -> int:
    """Derives the shapes of several variables again, where shapes above them changed. Runs no function."""

def forward_all(
    variables: Iterable[Variable],
    clear_buffer: bool = False,
    clear_no_need_grad: bool = False,
    function_pre_hook: _Hook | None = None,
    function_post_hook: _Hook | None = None,
) -> None:
    """Computes several variables in one run. Each function runs once, and none of the variables is cleared."""

def differentiate(
    outputs: Sequence[Any],
    seeds: Sequence[Variable | None],
    inputs: Sequence[Any] | None,
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool | None,
    since: int = 0,
) -> list[Variable | None]:
    """Differentiates `outputs`. Returns the gradients by `inputs`, or adds them to leaves if `allow_unused` is None."""

def backward_of_loss(loss: Any, retain_graph: Any) -> bool:
    """Runs backward from a loss of one element with gradient one: the fast path of `autodiff.backward`."""

def live_variables() -> int:
    """Number of live variables, in graphs or held by Python."""

def plans_made() -> int:
    """Number of run plans made so far."""

def bfloat16_instructions() -> str:
    """The instructions that products in bfloat16 use: `amx`, `avx512bf16`, or `float32` if numbers are widened."""

def integer_instructions() -> str:
    """The instructions that products of 8-bit levels use, such as `amx`, `avx512vnni`, `avx2`, `i8mm` or `portable`."""

def births() -> int:
    """Number of functions made so far."""

@final
class Notes:
    """A record of the variables that functions read and made on this thread while no graph was built."""

    def swap(self) -> None:
        """Exchanges this record with the one that the thread writes to now, which may be none."""
    def read(self) -> list[Variable]:
        """The variables that were read and need a gradient."""
    def has_made(self, v: Variable) -> bool:
        """True if a function made `v` during the recording."""

def is_born_since(v: Variable, since: int) -> bool:
    """True if a function made at `since` or later, on the scale of `births`, computes `v`."""

def plan_is_plain() -> bool:
    """True if plans run function by function."""

def set_plan_is_plain(on: bool) -> None:
    """Sets `plan_is_plain`."""

def taken_from_outside(ends: Sequence[Variable], since: int, known: Sequence[Variable]) -> list[Variable]:
    """The variables that need a gradient and enter a new part of the graph from outside, except `known`."""

def fail_allocations(first: int = 0, count: int = 0) -> int:
    """Makes allocations fail, for tests: `count` of them, from number `first` of those made from now on.

    By default none fail. Returns the number of allocations since the last call if failures were scheduled.
    """

def are_small_whole(x: NDArray[Any]) -> bool:
    """True if an array is contiguous, of 32- or 64-bit integers, and all are from `-2^23` to `2^23 - 1`."""

def non_max_suppression(
    boxes: Variable,
    scores: Variable,
    center_point_box: int,
    max_output_boxes_per_class: int,
    iou_threshold: float,
    score_threshold: float,
) -> NDArray[np.int64]:
    """Result of the function `onnx_non_max_suppression` for the current values of two variables, as a NumPy array."""

def assign_together(pairs: Sequence[tuple[NdArray, NDArray[Any]]]) -> None:
    """Assigns NumPy arrays of equal shapes to arrays, including their types."""

def get_conv_algorithm() -> str:
    """The convolution algorithm: see `set_conv_algorithm`."""

def get_matmul_precision() -> str:
    """The precision of products of float32 matrices: see `set_matmul_precision`."""

def get_num_threads() -> int:
    """Number of threads that share the work of a function."""

def grad_graph(outputs: list[Variable], inputs: list[Variable], grad_outputs: list[Variable]) -> list[Variable | None]:
    """Gradients of `outputs` by `inputs` as variables of a graph, starting from `grad_outputs`.

    None for an input that is not reached.
    """

def grad_mode() -> bool:
    """True if functions that are built now take part in differentiation."""

def noting() -> bool:
    """True if reads and outputs of functions are recorded while no graph is built."""

def in_recomputing() -> bool:
    """True if values are being recomputed on this thread."""

def intern_context(backend: Sequence[str], array_class: str, device_id: str, compute: str) -> int:
    """The number of the context with these parts. `compute` is `float`, `double`, `half` or `bfloat16`."""

def memory_stats() -> dict[str, int]:
    """Bytes in live buffers, bytes of cached free memory, and the peak of live bytes."""

def plan_facts(variable: Variable, memory_budget: int | None, clear_buffer: bool = False) -> dict[str, Any]:
    """Memory use of a training step that ends in `variable`, or of a prediction, for `kinnor.plan_report`."""

def read_onnx(content: Any, least: int, most: int) -> tuple[bytes, list[tuple[int, int, int]], int]:
    """Reads an ONNX file without the bytes of large initializers."""

def read_safetensors(content: bytes) -> tuple[list[tuple[str, str, list[int], int]], dict[str, str]]:
    """Reads the header of a safetensors file and checks it against the length of the file."""

def record_clear_flags(on: bool) -> None:
    """Starts or stops recording the arrays that are cleared after each function."""

def recorded_clear_flags() -> list[tuple[_Flags, _Flags]]:
    """The arrays cleared after each function: (data, grad) flags of its inputs and of its outputs."""

def recompute_mode() -> bool:
    """True if variables that are made now may be recomputed."""

def record_random() -> None:
    """Starts recording the random numbers that this thread draws."""

def recorded_random() -> list[tuple[int, int]]:
    """The random numbers drawn since the last `record_random`, as the start of each sequence."""

def replay_random(keys: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Queues recorded random numbers, which this thread draws before new ones.

    Returns the rest of the previous queue.
    """

def reset_peak_memory() -> None:
    """Restarts the peak of live bytes."""

def part(x: Variable | NdArray, key: list[Any]) -> Any:
    """The part of `x` that a key names. The key has an entry for each axis, and None for a new axis."""

def put(x: Variable | NdArray, value: Variable | NdArray, key: list[Any], in_place: bool) -> Any:
    """`x` with the part replaced by `value`, which is broadcast. Writes to the memory of `x` if `in_place`."""

def scope_auto_forward(on: bool | None) -> bool | None:
    """Sets or removes the override of this thread. Returns the old one."""

def scope_context(number: int | None) -> int | None:
    """Sets or removes the override of this thread. Returns the old one."""

def set_recomputing(on: bool) -> bool:
    """Marks that values are being recomputed on this thread. Returns the old mark."""

def use_known_parameter(
    scope: dict[str, Any], name: str, shape: Any, need_grad: bool, as_need_grad: bool
) -> Variable | None:
    """As `use_parameter`, for the parameter `name` of a scope."""

def use_parameter(parameter: Variable, need_grad: bool, name: str) -> Variable:
    """The variable that stands for a registered parameter in a graph.

    It has the given name and shares data and gradient with the parameter. It needs a gradient if `need_grad` is set and
    grad mode is on.
    """

def scope_recompute(on: bool | None) -> bool | None:
    """Sets or removes the override of this thread. Returns the old one."""

def random_state() -> tuple[int, int]:
    """The seed of the random sequence, and the count of numbers drawn from it."""

def restore_random(seed: int, offset: int) -> None:
    """Continues the random sequence of `seed` after `offset` numbers."""

def seed(value: int) -> None:
    """Restarts the sequence of random numbers from a seed."""

def share_random(part: int, parts: int) -> None:
    """Makes this process draw slice number `part` of the `parts` slices of random numbers of whole arrays."""

def set_auto_forward_mode(on: bool) -> None:
    """Sets the default of the process."""

def set_check_saved(what: str) -> None:
    """Sets `check_saved` for the process."""

def set_context_mode(number: int) -> None:
    """Sets the default of the process."""

def set_conv_algorithm(name: str) -> None:
    """Sets the convolution algorithm of the process."""

def set_matmul_precision(name: str) -> None:
    """Sets how products of float32 matrices are computed in this process."""

def completed_gradients(function: Function, grads: list[NdArray]) -> list[tuple[Function, list[int]]]:
    """The functions of a backward run from `function` in order, each with the gradients that it completes."""

def is_nnabla() -> bool:
    """True if the dialect is NNabla's."""

def set_dialect(dialect: str) -> None:
    """Sets the dialect of the process, and with it the defaults of `execution_order` and `check_saved`."""

def set_execution_order(order: str) -> None:
    """Sets the order of forward runs, for the process."""

def set_global_hook(when: int, key: str, hook: _Hook) -> bool:
    """Registers a hook of all runs.

    Returns true if the key was free. `when` is 0 for before, 1 for after each function.
    """

def enter_mode(name: str, value: bool | int | None) -> int:
    """Enters a scope with a mode. Returns the id of the scope, for `leave_mode`."""

def leave_mode(ids: list[int]) -> int | None:
    """Leaves the innermost scope of this context whose id is in `ids`.

    Returns the id, or None if there is no such scope.
    """

def put_mode(name: str, value: bool | int | None) -> None:
    """Sets a mode until the end of the innermost scope that sets the same mode, or of the context if there is none."""

def set_grad_mode(on: bool) -> bool:
    """Sets the grad mode of this thread. Returns the old one."""

def set_num_threads(n: int) -> None:
    """Sets the number of threads that share the work of a function. Results do not depend on it."""

def set_recompute_mode(on: bool) -> None:
    """Sets the default of the process."""

def take_timings() -> list[tuple[list[Function], bool, int, int, int]]:
    """The steps timed on this thread since the last call."""

def time_runs(on: bool) -> None:
    """Starts or stops timing the steps of runs, on all threads."""

def unset_global_hook(when: int, key: str) -> bool:
    """Removes a hook of all runs. Returns true if there was one."""
