"""What the emulation refuses before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_backend.devices import emulated
from gpu_backend.devices.base import DeviceError
from gpu_backend.devices.emulated import EmulatedServingDevice
from gpu_backend.engines.base import Limits
from gpu_backend.models.description import Model
from gpu_backend.models.registry import read_model

SHAPES = Path(__file__).parents[3] / "scripts" / "bench" / "shapes"
LIMITS = Limits(
    max_batch=4, max_context=4096, max_prefill_tokens=512, max_prefill_slots=4, page_size=16, total_pages=0
)


@pytest.fixture
def mixture(tmp_path: Path) -> Model:
    (tmp_path / "config.json").write_text((SHAPES / "qwen3-30b-a3b.json").read_text())
    return read_model(tmp_path)


def test_the_cpu_refuses_a_model_that_does_not_fit(mixture: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "available_bytes", lambda: 20 * 10**9)
    message = r"does not fit: its weights take 122\.1 GB in fp32, and 20\.0 GB of host memory is available"
    with pytest.raises(DeviceError, match=message):
        EmulatedServingDevice().limits(mixture, LIMITS, None)
    monkeypatch.setattr(emulated, "available_bytes", lambda: 200 * 10**9)
    assert EmulatedServingDevice().limits(mixture, LIMITS, None).total_pages > 0
