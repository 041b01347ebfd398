"""Version and build facts under NNabla's names."""

from __future__ import annotations

from kinnor.compat.nnabla import VERSION

__all__ = ["__author__", "__build_number__", "__email__", "__version__"]

__version__ = VERSION
__author__ = "The authors of Kinnor"
__email__ = ""
__build_number__ = 0
