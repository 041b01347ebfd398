"""NNabla's older name of `parametric_function_class`."""

from .parametric_function_class import *  # noqa: F403
from .parametric_function_class import __all__ as __all__
