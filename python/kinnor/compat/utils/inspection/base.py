"""The base class of hooks called before and after each function of a run."""

from __future__ import annotations

from typing import Any

__all__ = ["FunctionHookCallbackBase"]


class FunctionHookCallbackBase:
    """The base class of objects that observe runs through `function_pre_hook` and `function_post_hook`."""

    def pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Called before a function.

        Args:
            *args: The function, or other arguments defined by the subclass.
            **kwargs: Defined by the subclass.
        """
        raise NotImplementedError(f"{type(self).__name__}.pre_hook: expected the class to define it")

    def post_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Called after a function.

        Args:
            *args: The function, or other arguments defined by the subclass.
            **kwargs: Defined by the subclass.
        """
        raise NotImplementedError(f"{type(self).__name__}.post_hook: expected the class to define it")
