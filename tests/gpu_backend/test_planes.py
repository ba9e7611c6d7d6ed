"""Refusals before anything is loaded, and what the start says meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_backend import gpu_plane, planes
from gpu_backend.cuda.driver import CudaUnavailable, NoGpu
from gpu_backend.engine.base import Limits
from gpu_backend.model.config import ModelConfig
from gpu_backend.progress import ProgressLine, describe

SHAPES = Path(__file__).parents[2] / "scripts" / "bench" / "shapes"
LIMITS = Limits(
    max_batch=4, max_context=4096, max_prefill_tokens=512, max_prefill_lanes=4, page_size=16, total_pages=0
)


@pytest.fixture
def mixture(tmp_path: Path) -> ModelConfig:
    (tmp_path / "config.json").write_text((SHAPES / "qwen3-30b-a3b.json").read_text())
    return ModelConfig.from_directory(tmp_path)


def test_the_cpu_refuses_a_model_that_does_not_fit(
    mixture: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "available_bytes", lambda: 20 * 10**9)
    message = r"does not fit: its weights take 122\.1 GB in fp32, and 20\.0 GB of host memory is available"
    with pytest.raises(planes.PlaneError, match=message):
        planes.CpuPlane().limits(mixture, LIMITS, None)
    monkeypatch.setattr(planes, "available_bytes", lambda: 200 * 10**9)
    assert planes.CpuPlane().limits(mixture, LIMITS, None).total_pages > 0


def raising(error: Exception) -> Callable[[int], planes.Plane]:
    def plane(ordinal: int) -> planes.Plane:
        raise error

    return plane


def test_auto_falls_back_only_where_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_plane, "GpuPlane", raising(NoGpu("no NVIDIA driver")))
    assert planes.choose("auto").name == "cpu"
    assert "serving from the CPU emulation: no NVIDIA driver" in capsys.readouterr().err
    monkeypatch.setattr(gpu_plane, "GpuPlane", raising(CudaUnavailable("capability 8.0")))
    with pytest.raises(planes.PlaneError, match=r"capability 8\.0; --device cpu to run the emulation"):
        planes.choose("auto")
    assert planes.choose("cpu").name == "cpu"


@pytest.mark.parametrize("device", ["auto", "gpu"])
def test_a_gpu_that_is_named_is_not_replaced(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(gpu_plane, "GpuPlane", raising(NoGpu("no NVIDIA driver")))
    with pytest.raises(planes.PlaneError, match="no GPU to serve from: no NVIDIA driver"):
        planes.choose(device, 0)
    with pytest.raises(planes.PlaneError, match="--gpu 0 is a GPU, and --device is cpu"):
        planes.choose("cpu", 0)


def test_available_memory_is_that_of_this_machine() -> None:
    assert 1 << 20 < planes.available_bytes() < 1 << 50


@pytest.mark.parametrize("name", [path.stem for path in sorted(SHAPES.glob("*.json"))])
def test_every_shape_of_the_benchmarks_is_supported(tmp_path: Path, name: str) -> None:
    raw = json.loads((SHAPES / f"{name}.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert ModelConfig.from_directory(tmp_path).architecture == raw["architectures"][0]


def test_progress_says_bytes_and_their_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe("weights", 12_340_000_000, 61_060_000_000, 4.0) == "12.34 of 61.06 GB, 3.1 GB/s"
    assert describe("weights", 0, 10**9, 0.0) == "0.00 of 1.00 GB"
    assert describe("graphs", 12, 90, 4.0) == "12/90"
    line = ProgressLine()
    for done in (0, 1, 2):
        line("graphs", done, 2)
    assert capsys.readouterr().err == "blink backend: graphs 2/2\n"  # no terminal: the end alone


def test_progress_on_a_terminal_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("gpu_backend.progress.TERMINAL_S", 0.0)
    line = ProgressLine()
    for done in (0, 1, 2):
        line("graphs", done, 2)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.endswith("\rblink backend: graphs 2/2 [####################]\n")
