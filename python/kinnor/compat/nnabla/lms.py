"""NNabla's interface for swapping arrays to the host. Kinnor sets a memory budget instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kinnor

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SwapInOutScheduler"]


class SwapInOutScheduler:
    """Keeps runs within a number of bytes, as `kinnor.memory_budget` does. Nothing is swapped.

    Args:
        h_ctx: Context of the host, which is without effect.
        d_ctx: Context of the device, which is without effect.
        size: The budget in bytes.
        prefetch_size: Without effect.
        save_host_mem: Without effect.
        save_host_mem_no_abort: Without effect.
    """

    def __init__(
        self,
        h_ctx: Any = None,
        d_ctx: Any = None,
        size: int | None = None,
        prefetch_size: int | None = None,
        save_host_mem: bool = True,
        save_host_mem_no_abort: bool = False,
    ) -> None:
        self.size = size
        self._budget: Any = None

    def start_scheduling(self) -> None:
        """Enter the budget."""
        self._budget = kinnor.memory_budget(self.size)
        self._budget.__enter__()

    def end_scheduling(self) -> None:
        """Leave the budget."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.__exit__(None, None, None)

    def __enter__(self) -> None:
        self.start_scheduling()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_scheduling()

    def function_pre_hook(self, func: Any) -> None:
        """Without effect: a hook that programs pass to runs."""

    def function_post_hook(self, func: Any) -> None:
        """Without effect: a hook that programs pass to runs."""

    def update_pre_hook(self) -> None:
        """Without effect: a hook that programs pass to solvers."""

    def update_post_hook(self) -> None:
        """Without effect: a hook that programs pass to solvers."""
