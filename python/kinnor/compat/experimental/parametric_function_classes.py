"""The classes of `parametric_function_class`, under the name that programs import them by."""

from .parametric_function_class import *  # noqa: F403
from .parametric_function_class import __all__ as __all__
