"""Tests here need a GPU, one at a time; without one each is skipped and says why."""

from pathlib import Path

import pytest


def reason_to_skip() -> str | None:
    """Why no test of this directory can run, or None."""
    try:
        from gpu_backend.cuda.driver import CudaUnavailable, Device

        Device().close()
    except ImportError as error:
        return f"needs {error.name}"
    except CudaUnavailable as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    reason = reason_to_skip() if mine else None
    for item in mine:
        item.add_marker(pytest.mark.skip(reason=reason) if reason else pytest.mark.alone)
