"""Random asyncio tasks observe only their own scopes. The tasks are in `random_tasks.py`."""

import pytest
from random_tasks import check


@pytest.mark.parametrize("block", range(4))
def test_a_task_sees_its_own_scopes_only(block):
    for seed in range(50 * block, 50 * block + 50):
        check(seed)
