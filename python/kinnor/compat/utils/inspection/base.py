"""What is called before and after each function of a run."""

from __future__ import annotations

from typing import Any

__all__ = ["FunctionHookCallbackBase"]


class FunctionHookCallbackBase:
    """The base of what looks at runs through `function_pre_hook` and `function_post_hook`."""

    def pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Called before a function.

        Args:
            *args: The function, or as the class says.
            **kwargs: As the class says.
        """
        raise NotImplementedError(f"{type(self).__name__}.pre_hook: expected the class to define it")

    def post_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Called after a function.

        Args:
            *args: The function, or as the class says.
            **kwargs: As the class says.
        """
        raise NotImplementedError(f"{type(self).__name__}.post_hook: expected the class to define it")
