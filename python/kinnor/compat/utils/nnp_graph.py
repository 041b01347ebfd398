"""Builds networks of `.nnp` files with access to variables by name, and passes that rewrite networks first.

net = NnpLoader("net.nnp").get_network("net", batch_size=1)
x, y = net.inputs["x"], net.outputs["y"]
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import nnp as graph_def
from ... import parameter as parameters
from ...nnp import NetworkError
from . import network_passes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._core import Variable
    from ...files.parameter_file import PathOrFile
    from ...nnp import ProtoNetwork
    from ...parameter.tree import Scope
    from .network_passes import PassFunction, PassVariable

__all__ = ["NetworkNameError", "NnpLoader", "NnpNetwork", "NnpNetworkPass"]


class NetworkNameError(NetworkError, KeyError):
    """The file has no network of this name."""

    __str__ = Exception.__str__  # KeyError would quote the message


class NnpNetwork:
    """A built network. Its parameters are also registered in the current scope.

    Args:
        proto_network: The description of the network.
        batch_size: Batch size; the file's by default.
        callback: An `NnpNetworkPass` that rewrites the network first, or None.
    """

    def __init__(self, proto_network: ProtoNetwork, batch_size: int | None, callback: NnpNetworkPass | None) -> None:
        network = proto_network.expand_loop_control().promote(callback, batch_size)
        network(batch_size=batch_size)
        self.proto_network = network
        self._variables: dict[str, Variable] = {}
        for name, node in (*network.variables.items(), *network.parameters.items()):
            if node.variable_instance is not None:
                node.variable_instance.name = name
                self._variables[name] = node.variable_instance
        for name in network.parameters:
            parameters.set_parameter(name, self._variables[name])

    @property
    def inputs(self) -> dict[str, Variable]:
        """Variables without a parent, by name."""
        return {name: self._variables[name] for name in self.proto_network.inputs}

    @property
    def outputs(self) -> dict[str, Variable]:
        """Variables that no function reads, by name."""
        return {name: self._variables[name] for name in self.proto_network.outputs}

    @property
    def variables(self) -> dict[str, Variable]:
        """All variables and parameters by name."""
        return self._variables


class NnpLoader:
    """Reads networks from a file.

    Args:
        filepath: Path of a `.nnp`, `.nntxt` or `.prototxt` file, or a file open for reading.
        scope: The scope to load parameters into; by default a new one.
        extension: Format of a file object.

    Raises:
        NetworkError: If the file is malformed.
        OSError: If the file cannot be read.
    """

    def __init__(self, filepath: PathOrFile, scope: Scope | None = None, extension: str = ".nntxt") -> None:
        self._params: Scope = OrderedDict() if scope is None else scope
        self.g = graph_def.load(
            filepath, parameter_scope=self._params, rng=np.random.RandomState(1223), extension=extension
        )
        self.network_dict = dict(self.g.networks)

    def get_network_names(self) -> list[str]:
        """The names of the networks."""
        return list(self.network_dict)

    def get_network(
        self, name: str, batch_size: int | None = None, callback: NnpNetworkPass | None = None
    ) -> NnpNetwork:
        """Build a network.

        Args:
            name: Name of the network.
            batch_size: Batch size; the file's by default.
            callback: A pass that rewrites the network first, or None.

        Raises:
            NetworkNameError: If the network does not exist. It is a `KeyError`.
            NetworkError: If the network cannot be built.
        """
        if name not in self.network_dict:
            raise NetworkNameError(f"get_network: expected one of {self.get_network_names()}, got {name!r}")
        return NnpNetwork(self.network_dict[name], batch_size, callback)


class NnpNetworkPass:
    """A pass that rewrites a network before it is built, by callbacks on its nodes.

    Args:
        verbose: Level of messages: 1 prints changes, 2 also prints built nodes.
    """

    def __init__(self, verbose: int = 0) -> None:
        self._variables: dict[str, Callable[[PassVariable], PassVariable]] = {}
        self._functions: dict[tuple[str, str], Callable[[PassFunction], PassFunction]] = {}
        self._passes: dict[tuple[str, str], Callable[..., object]] = {}
        self._fix_parameters = False
        self._ends: set[str] = set()
        self._verbose = verbose

    def verbose(self, *texts: object) -> None:
        """Print a message about a change, if `verbose` is at least 1.

        Args:
            texts: Parts of the message.
        """
        if self._verbose:
            print(*texts)

    def verbose2(self, *texts: object) -> None:
        """Print a message about a built node, if `verbose` is at least 2.

        Args:
            texts: Parts of the message.
        """
        if self._verbose > 1:
            print(*texts)

    # --- Registration of callbacks

    def on_generate_variable(self, name: str) -> Callable[..., Any]:
        """Decorate a callback that receives a variable or parameter and returns it, possibly changed.

        Args:
            name: The name of the variable.
        """
        return _noted(self._variables, name)

    def on_generate_function_by_name(self, name: str) -> Callable[..., Any]:
        """Decorate a callback that receives a function and returns it, possibly changed.

        Args:
            name: The name of the function.
        """
        return _noted(self._functions, ("name", name))

    def on_generate_function_by_type(self, name: str) -> Callable[..., Any]:
        """Decorate a callback that receives each function of a type and returns it, possibly changed.

        Args:
            name: The type.
        """
        return _noted(self._functions, ("type", name))

    def on_function_pass_by_name(self, name: str) -> Callable[..., Any]:
        """Decorate a callback that receives a function, the variables by name, and the parameters.

        Args:
            name: The name of the function.
        """
        return _noted(self._passes, ("name", name))

    def on_function_pass_by_type(self, name: str) -> Callable[..., Any]:
        """Decorate a callback that receives each function of a type, the variables by name, and the parameters.

        Args:
            name: The type.
        """
        return _noted(self._passes, ("type", name))

    def drop_function(self, *names: str) -> None:
        """Remove functions.

        Args:
            names: Names of the functions.
        """
        for name in names:
            self.on_function_pass_by_name(name)(lambda f, variables, scope: f.disable())

    def remove_and_rewire(self, name: str, i: int = 0, o: int = 0) -> None:
        """Remove a function and connect one of its inputs to the readers of one of its outputs.

        Args:
            name: The name of the function.
            i: Index of the input.
            o: Index of the output.
        """

        @self.on_function_pass_by_name(name)
        def rewire(f: PassFunction, variables: object, scope: object) -> None:
            """Remove the function and rename the input to the output."""
            taken, made = f.inputs[i], f.outputs[o]
            self.verbose(f"Removing {f.name}: {taken.name} takes the place of {made.name}.")
            made.rewire_on(taken)
            taken.proto.name, made.proto.name = made.proto.name, taken.proto.name

    def applied_to(self, network: ProtoNetwork, batch_size: int | None = None) -> ProtoNetwork:
        """Returns a network after this pass.

        Args:
            network: The network, which stays as it is.
            batch_size: The length of the batch while shapes are inferred, if not the length that the network says.
        """
        return network_passes.applied(network, self, batch_size)

    def fix_parameters(self) -> None:
        """Mark all parameters as needing no gradient."""
        self._fix_parameters = True

    def use_up_to(self, *names: str) -> None:
        """Remove the functions after these variables.

        Args:
            names: The names of the variables.
        """
        self._ends.update(names)

    def set_variable(self, name: str, input_var: Variable) -> None:
        """Replace a variable of the network by another variable.

        Args:
            name: Name of the variable in the network.
            input_var: The replacement.
        """

        @self.on_generate_variable(name)
        def replace(v: PassVariable) -> PassVariable:
            """Set the replacement and its shape."""
            v.proto.shape.dim[:] = input_var.shape
            v.variable = input_var
            return v

    def force_average_pooling_global(self, name: str, by_type: bool = False) -> None:
        """Make an average pooling global: it covers its whole input.

        Args:
            name: The name of the function, or its type.
            by_type: Whether `name` is a type.
        """
        decorate = self.on_generate_function_by_type if by_type else self.on_generate_function_by_name

        @decorate(name)
        def widen(f: PassFunction) -> PassFunction:
            """Set kernel and stride to the input's spatial shape."""
            shape = f.inputs[0].proto.shape.dim[2:]
            held = f.proto.average_pooling_param
            held.kernel.dim[:], held.stride.dim[:] = shape, shape
            return f

    def check_average_pooling_global(self, name: str, by_type: bool = False) -> None:
        """Raise NetworkError if an average pooling does not cover its whole input.

        Args:
            name: The name of the function, or its type.
            by_type: Whether `name` is a type.
        """
        decorate = self.on_generate_function_by_type if by_type else self.on_generate_function_by_name

        @decorate(name)
        def check(f: PassFunction) -> PassFunction:
            """Returns the function. Raises NetworkError if its kernel or stride is not the size of the input."""
            shape = f.inputs[0].proto.shape.dim[2:]
            held = f.proto.average_pooling_param
            if held.kernel.dim[:] != shape or held.stride.dim[:] != shape:
                raise NetworkError(
                    f"check_average_pooling_global: expected kernel and stride {list(shape)} of {f.name!r}, "
                    f"got {list(held.kernel.dim)} and {list(held.stride.dim)}; force_average_pooling_global widens it"
                )
            return f

    def set_batch_normalization_batch_stat_all(self, batch_stat: bool) -> None:
        """Set the statistics of all batch normalizations: of the batch, or the running ones.

        Args:
            batch_stat: Whether to use statistics of the batch.
        """

        @self.on_generate_function_by_type("BatchNormalization")
        def choose(f: PassFunction) -> PassFunction:
            """Set the argument `batch_stat`."""
            f.proto.batch_normalization_param.batch_stat = batch_stat
            return f

    # --- Methods called by `ProtoNetwork.promote`

    def generate_variable(self, v: PassVariable) -> PassVariable:
        """Apply the callbacks of a variable.

        Args:
            v: The variable.
        """
        found = self._variables[v.name](v) if v.name in self._variables else v
        if self._fix_parameters:
            found.need_grad = False
        return found

    def generate_function(self, f: PassFunction) -> PassFunction:
        """Apply the callbacks of a function.

        Args:
            f: The function.
        """
        found: PassFunction = self._apply_generate_function_by_name(self._apply_generate_function_by_type(f))
        return found

    def pass_function(self, f: PassFunction, variables: dict[str, PassVariable], scope: Scope) -> None:
        """Call the callbacks of a function.

        Args:
            f: The function.
            variables: The variables by name.
            scope: The parameters.
        """
        self._apply_function_pass_by_type(f, variables, scope)
        self._apply_function_pass_by_name(f, variables, scope)

    def stop_at(self, variables: list[PassVariable]) -> None:
        """Mark the variables at which the network ends.

        Args:
            variables: Inputs of a function.
        """
        for variable in variables:
            if variable.name in self._ends:
                variable.stop = True

    # --- Methods called by user-defined loaders, under NNabla's names. Their nodes have the same attributes.

    def _apply_generate_variable(self, v: Any) -> Any:
        """Applies the callback for variables."""
        return self.generate_variable(v)

    def _apply_generate_function_by_type(self, f: Any) -> Any:
        """Applies the callback for the type of a function, or returns the function."""
        return self._functions[key](f) if (key := ("type", f.proto.type)) in self._functions else f

    def _apply_generate_function_by_name(self, f: Any) -> Any:
        """Applies the callback for the name of a function, or returns the function."""
        return self._functions[key](f) if (key := ("name", f.name)) in self._functions else f

    def _apply_function_pass_by_type(self, f: Any, variables: Any, param_scope: Any) -> None:
        """Applies the pass for the type of a function, if there is one."""
        self._pass(("type", f.proto.type), f, variables, param_scope)

    def _apply_function_pass_by_name(self, f: Any, variables: Any, param_scope: Any) -> None:
        """Applies the pass for the name of a function, if there is one."""
        self._pass(("name", f.name), f, variables, param_scope)

    def _pass(self, key: tuple[str, str], f: Any, variables: Any, param_scope: Any) -> None:
        """Call the pass callback of a key, unless the function is disabled."""
        if key in self._passes and not f.disabled:
            self._passes[key](f, variables, param_scope)

    def _apply_use_up_to(self, variables: list[Any]) -> None:
        """Stops at the variables at which the user wants the network to end."""
        self.stop_at(variables)


def _noted(callbacks: dict[Any, Any], key: object) -> Callable[[Any], Any]:
    """Decorate a callback: register it under a key, replacing an earlier one."""

    def note(callback: Any) -> Any:
        """Registers the callback under the key and returns it."""
        callbacks[key] = callback
        return callback

    return note
