"""The pages of the reference: the page of each public name, and the names without a page.

Reads the imported package. Independent of the site generator (see `hooks.py`).
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import GetSetDescriptorType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import kinnor as nn  # noqa: E402

FAMILIES = {
    "Activations": ("pointwise/activation", "pointwise/rectifier", "pointwise/concatenated_relu"),
    "Arithmetic": ("pointwise/arithmetic", "pointwise/powers", "pointwise/nary", "pointwise/remainder"),
    "Mathematics": ("pointwise/math", "pointwise/trigonometry"),
    "Comparison and logic": ("pointwise/comparison", "pointwise/logical", "pointwise/selection"),
    "Shapes and parts of arrays": ("arrangement", "indexing"),
    "Reductions and sorting": ("reductions",),
    "Products and attention": ("products", "linear_algebra"),
    "Convolutions, pooling and images": ("spatial",),
    "Recurrent networks": ("recurrent",),
    "Normalization": ("normalizations",),
    "Losses": ("losses",),
    "Random numbers": ("randomness",),
    "Quantization": ("quantization",),
    "Signals": ("signal",),
    "The graph itself": ("pointwise/special",),
}
"""Pages of functions, each with the folders or files of `src/ops` whose operations it shows."""

COMPOSED = {
    "PythonFunction": "The graph itself",
    "clip_by_norm": "Normalization",
    "clip_by_value": "Comparison and logic",
    "dot": "Products and attention",
    "einsum": "Products and attention",
    "forget": "The graph itself",
    "fused_batch_normalization": "Normalization",
    "fused_convolution": "Convolutions, pooling and images",
    "multi_head_attention": "Products and attention",
    "onnx_resize": "Convolutions, pooling and images",
    "reduce": "Reductions and sorting",
    "sync_batch_normalization": "Normalization",
    "vat_noise": "Random numbers",
}
"""Functions written in Python, and the page of each."""

SUBJECTS = {
    "Variables and arrays": (
        "A variable is a place in a graph, an array the memory behind it.",
        (
            "Variable",
            "NdArray",
            "function",
            "dlpack",
            "array_classes",
            "prefer_cached_array",
            "reset_array_preference",
        ),
    ),
    "Errors": (
        "Each derives from the error of Python that a caller expects. A refused call changes nothing.",
        (
            "Error",
            "ArgumentError",
            "AxisError",
            "BudgetError",
            "CallError",
            "ClearedError",
            "DTypeError",
            "GraphError",
            "IndexRangeError",
            "InternalError",
            "ModifiedError",
            "NotComputedError",
            "ParameterError",
            "RangeError",
            "ShapeError",
            "UnsupportedError",
        ),
    ),
    "Running graphs": (
        "When functions are computed, where, and by how many threads.",
        (
            "auto_forward",
            "get_auto_forward",
            "set_auto_forward",
            "forward_all",
            "grad",
            "no_grad",
            "context",
            "compat.ext_utils",
            "available_contexts",
            "set_num_threads",
            "get_num_threads",
            "set_conv_algorithm",
            "get_conv_algorithm",
            "set_matmul_precision",
            "get_matmul_precision",
            "show_config",
            "hooks",
            "config",
        ),
    ),
    "Memory": (
        "What is kept, freed and computed again.",
        (
            "memory_budget",
            "recompute",
            "recompute_fn",
            "set_global_recompute",
            "get_global_recompute",
            "memory_stats",
            "reset_peak_memory",
            "clear_memory_cache",
            "plan_report",
        ),
    ),
    "Gradients": ("Gradients of any order, in dynamic mode and by functions.", ("autodiff", "autodiff.graph")),
    "Parameters and modules": (
        "Parameters live in a tree under their names; modules keep their own.",
        ("parameter", "core", "initializer"),
    ),
    "Layers": (
        "Modules that make their parameters when they are built. They follow the training and evaluation modes.",
        ("layers",),
    ),
    "Parametric functions": (
        "Functions with parameters, which they find or make in the current parameter scope.",
        ("parametric_functions",),
    ),
    "Solvers": (
        "Rules by which parameters move along their gradients, and schedules of their rates.",
        ("solvers", "learning_rate_scheduler", "compat.experimental.mixed_precision_training"),
    ),
    "Data": (
        "Data sets, data sources and the iterators over them.",
        (
            "datasets",
            "data.data_iterator",
            "data.data_source",
            "data.data_source_implements",
            "data.cache_data_source",
            "data.csv_data_source",
            "data.data_source_loader",
            "data.download",
            "compat.utils.image_utils",
            "compat.utils.audio_utils",
            "compat.utils.rnn",
        ),
    ),
    "Files": (
        "Networks, parameters and states of solvers as files.",
        (
            "model",
            "open_parameters",
            "load_checkpoint",
            "save_checkpoint",
            "compat.utils.load",
            "compat.utils.save",
            "compat.utils.nnp_graph",
        ),
    ),
    "ONNX files": ("Networks from other frameworks and for them: see also [the operators](../onnx.md).", ("onnx",)),
    "Networks as data": (
        "Graphs that are kept, changed and written without being run.",
        ("nnp",),
    ),
    "Models": (
        "Networks for images, with trained weights.",
        (
            "compat.models.imagenet",
            "compat.models.object_detection",
            "compat.models.object_detection.utils",
            "compat.models.object_detection.draw_utils",
            "compat.models.semantic_segmentation",
            "compat.models.semantic_segmentation.utils",
            "compat.models.semantic_segmentation.image_preprocess",
            "compat.models.base",
            "compat.models.categories",
            "compat.models.utils",
        ),
    ),
    "Several processes": (
        "Training on more than one process.",
        ("distributed", "place", "CommunicatorBackwardCallback"),
    ),
    "Watching a run": (
        "Curves, pictures, profiles, progress.",
        (
            "monitor",
            "compat.autolog",
            "compat.mlflow_save_load_model",
            "profiling",
            "pictures",
            "tensorboard",
            "logger",
        ),
    ),
    "Training loops": (
        "`fit` trains a model in one call. The other classes are its parts.",
        ("training",),
    ),
    "Random state": ("Seeds and generators of random numbers.", ("seed", "random")),
    "Graph converters": (
        "NNabla's classes that rewrite graphs, and training of quantized networks.",
        (
            "compat.experimental.graph_converters",
            "compat.utils.factorization",
            "parametric_functions.cpd",
            "compat.utils.qnn",
        ),
    ),
    "NNabla compatibility": (
        "Modules that only NNabla's programs use. New programs have other names for the same: see "
        "[from NNabla](../guide/from_nnabla.md).",
        (
            "compat.experimental.parametric_function_class",
            "compat.contrib.context",
            "compat.modules",
            "compat.cpu",
            "compat.utils.data_source",
            "compat.utils.create_cache",
            "compat.utils.nnp_format",
            "compat.experimental.viewers",
            "compat.utils.inspection",
            "compat.utils.profiler",
            "compat.utils.function_profile",
            "compat.utils.progress",
            "compat.testing",
            "compat.utils.communicator_util",
            "compat.utils.callback",
            "compat.utils.py23_compatible",
            "compat.utils.signature_utils",
            "compat.utils.image_utils.backend_manager",
            "compat.utils.image_utils.backend_events.image_utils_backend",
            "compat.utils.image_utils.backend_events.pil_backend",
            "compat.utils.image_utils.backend_events.pypng_backend",
            "compat.utils.image_utils.backend_events.common",
            "compat.utils.audio_utils.backend_manager",
        ),
    ),
}
"""Other pages: their subjects, and the names of `kinnor` on them. A module stands for all of its `__all__`."""

ALPHABETICAL = {"Layers", "Parametric functions"}
"""Pages whose names are sorted, like pages of functions. Others are in the order of their modules."""

INSIDE = {
    "compat.cli",
    "compat.utils.affine",
    "compat.utils.network_passes",
    "compat.utils.solver_messages",
    "compat.utils.times_alone",
    "compat.names",
    "files",
    "rewrite",
    "cli",
    "display",
    "launch",
    "parameter_groups",
    "placement",
    "report",
    "symbolic",
    "modes",
}
"""Modules that no program imports. Their public objects are in `kinnor` itself or behind a command."""


PACKAGE = ROOT / "python/kinnor"
PATHS = [path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".") for path in PACKAGE.rglob("*.py")]
MODULES = {
    f"kinnor.{name.removesuffix('.__init__')}"
    for name in PATHS
    if not name.startswith(("compat.nnabla", "compat.onnxruntime"))
}
"""All modules of the package except the names of other libraries. To import those changes the whole process."""


@dataclass(frozen=True)
class Page:
    """A page of the reference: its title, its first sentence, and the names on it with their modules."""

    title: str
    about: str
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        """The path of the page below `docs`."""
        return f"reference/{re.sub(r'[^a-z]+', '_', self.title.lower())}.md"


def at(name: str) -> Any:
    """Returns the object with this name below `kinnor`.

    If a module has the same name as an object, the module is used only for longer names.
    """
    outer, _, last = name.rpartition(".")
    module = importlib.import_module(f"kinnor.{outer}") if f"kinnor.{outer}" in MODULES else nn
    if outer and module is nn:
        return getattr(at(outer), last)
    return getattr(module, last)


def members(name: str) -> list[str]:
    """Returns the names that one entry of `SUBJECTS` stands for. A module stands for all names that it lists.

    An object's own name comes before its aliases, so that the page shows it under its own name.
    """
    if f"kinnor.{name}" not in MODULES:
        return [name]
    module = importlib.import_module(f"kinnor.{name}")
    listed = sorted(module.__all__, key=lambda each: getattr(getattr(module, each), "__name__", each) != each)
    return [f"{name}.{each}" for each in listed if is_documented(getattr(module, each))]


def aliases(name: str) -> list[str]:
    """Returns the other names that the module of an object has for it."""
    outer, _, last = name.rpartition(".")
    listed = getattr(importlib.import_module(f"kinnor.{outer}"), "__all__", ()) if f"kinnor.{outer}" in MODULES else ()
    return sorted(each for each in listed if each != last and at(f"{outer}.{each}") is at(name))


def is_documented(what: Any) -> bool:
    """True if an object has documentation of its own. A module does not, but its names do."""
    return not isinstance(what, ModuleType)


@cache
def pages() -> tuple[Page, ...]:
    """Returns all pages. A name that several modules list is shown only where it is listed first."""
    import kinnor.functions as F

    declared = {}
    for path in sorted((ROOT / "src/ops").rglob("*.rs")):
        for name in re.findall(r"^    \w+ = (\w+)\(", path.read_text(), re.MULTILINE):
            declared[name] = path.relative_to(ROOT / "src/ops").with_suffix("").as_posix()
    found, shown = [], set()
    for title, sources in FAMILIES.items():
        names = [n for source in sources for n, file in declared.items() if file.startswith(source) and n in F.__all__]
        names = sorted([*names, *(n for n, page in COMPOSED.items() if page == title)], key=str.lower)
        shown |= {id(getattr(F, n)) for n in names}
        about = (
            "With variables, a function builds a node of the graph. With an `NdArray`, as in the examples, it computes "
            "immediately. [All functions](../functions.md) lists the other families."
        )
        found.append(Page(title, about, tuple(f"functions.{n}" for n in names)))
    for title, (about, listed) in SUBJECTS.items():
        names = []
        for name in (each for source in listed for each in members(source)):
            target = at(name)
            if id(target) not in shown or not callable(target):
                shown.add(id(target))
                names.append(name)
        if title in ALPHABETICAL:
            names.sort(key=str.lower)
        found.append(Page(title, about, tuple(names)))
    return tuple(found)


def public() -> dict[str, Any]:
    """Returns every public name of the package below `kinnor`, and its object."""
    found = {name: getattr(nn, name) for name in {*nn.__all__, *nn.LAZY_NAMES} if not name.startswith("_")}
    for path in sorted(MODULES - {"kinnor.__init__", "kinnor.__main__"}):
        name = path.removeprefix("kinnor.")
        outer = name.rpartition(".")[0]
        if {name, name.split(".")[0], outer} & INSIDE or any(part.startswith("_") for part in name.split(".")):
            continue
        module = importlib.import_module(path)
        parent = sys.modules[f"kinnor.{outer}" if outer else "kinnor"]
        inner = outer and hasattr(parent, "__all__") and name.rpartition(".")[2] not in parent.__all__
        if not inner and not any(f"{outer}.".startswith(f"{each}.") for each in ("onnx", "compat.models.imagenet")):
            found |= {f"{name}.{each}": getattr(module, each) for each in getattr(module, "__all__", ())}
    return {name: each for name, each in found.items() if is_documented(each)}


@cache
def members_of_classes() -> dict[str, dict[str, type]]:
    """Returns the members that each class on a page must show, and the classes that define them.

    These are the documented public methods and properties. A member that an ancestor on a page shows is left out.
    """
    listed = {name: at(name) for page in pages() for name in page.names if isinstance(at(name), type)}
    found: dict[str, dict[str, type]] = {}
    for name, each in listed.items():
        ancestors = [other for other in each.__mro__[1:] if other in listed.values()]
        found[name] = {}
        for member, owner in owners(each).items():
            known = vars(owner)[member]
            above = [other for other in ancestors if hasattr(other, member)]
            is_shown = any(issubclass(other, owner) or not known.__doc__ for other in above)
            is_own = owner.__module__.startswith("kinnor") and not member.isupper()  # no constants
            if is_own and is_member(known) and not is_shown:
                found[name][member] = owner
    return found


def owners(each: type) -> dict[str, type]:
    """Returns the public members of a class, and the class that defines each."""
    found = {member: owner for owner in reversed(each.__mro__) for member in vars(owner)}
    return {member: owner for member, owner in found.items() if not member.startswith("_") and hasattr(each, member)}


def is_member(what: Any) -> bool:
    """True for documented methods and properties, false for constants and fields."""
    kinds = (classmethod, staticmethod, property, cached_property, GetSetDescriptorType)
    return (inspect.isroutine(what) or isinstance(what, kinds)) and bool(what.__doc__)


def missing() -> list[str]:
    """Returns the public names without a page."""
    names = {name for page in pages() for name in page.names}
    shown = {id(at(name)) for name in names}
    return sorted(name for name, each in public().items() if name not in names and id(each) not in shown)
