"""What the time between two tokens shall be, from the command line to the scheduler."""

from __future__ import annotations

import pytest
from compilation import ROOT

from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.options import BackendOptions, described_model, parse_target, wanted_limits


@pytest.mark.parametrize(("text", "milliseconds"), [("5", 5), ("12.5", 12.5), ("1e2", 100)])
def test_a_target_is_in_milliseconds(text: str, milliseconds: float) -> None:
    assert parse_target(text) == milliseconds


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "nan", "inf", "1e9", "5ms", "9" * 10_000])
def test_what_is_no_target_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"a number of milliseconds from 0\.1 to 60000") as refusal:
        parse_target(text)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(("target", "nanoseconds"), [(None, 0), (12.5, 12_500_000)])
def test_the_scheduler_gets_it_in_nanoseconds(target: float | None, nanoseconds: int) -> None:
    options = BackendOptions(ROOT / "models" / "demo", target_itl=target)
    limits = wanted_limits(options, described_model(options), GpuServingDevice.defaults)
    assert limits.target_itl_ns == nanoseconds


@pytest.mark.parametrize(("least", "target"), [(12.5, None), (12.5, 12.5), (5, 12.5)])
def test_the_scheduler_gets_the_least_time_too(least: float, target: float | None) -> None:
    options = BackendOptions(ROOT / "models" / "demo", min_itl=least, target_itl=target)
    limits = wanted_limits(options, described_model(options), GpuServingDevice.defaults)
    assert limits.min_itl_ns == least * 1e6


def test_a_least_time_beyond_the_target_is_refused() -> None:
    options = BackendOptions(ROOT / "models" / "demo", min_itl=20, target_itl=12.5)
    with pytest.raises(ValueError, match=r"min-itl is 20, it must be at most target-itl, which is 12\.5"):
        wanted_limits(options, described_model(options), GpuServingDevice.defaults)
