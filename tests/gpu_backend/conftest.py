from pathlib import Path

import fake_cuda
import pytest


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose lib/ holds a CUDA driver and a GEMM library that log and run nothing."""
    return fake_cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of compiled kernels that holds nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "blink"
