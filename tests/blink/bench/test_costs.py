"""What a window cost: energy by a counter in place of NVML's, and CPU time of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from uuid import UUID

import pytest
from limits import WAIT_S
from waiting import wait_until

from blink.bench.cpu_time import Watched, seconds, tree, watched
from blink.bench.energy import EnergyCounter, EnergyMeter
from blink.errors import CommandError


class NvmlError(Exception):
    pass


def nvml(readings: list[int]) -> types.SimpleNamespace:
    """NVML's functions with a counter in millijoules that goes through `readings`, and then fails."""

    def energy(device: str) -> int:
        if not readings:
            raise NvmlError("Not Supported")
        return readings.pop(0)

    return types.SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        NVML_CLOCK_SM=1,
        nvmlDeviceGetHandleByIndex=lambda index: f"device {index}",
        nvmlDeviceGetHandleByUUID=lambda uuid: f"device {uuid}",
        nvmlDeviceGetClockInfo=lambda device, clock: [1410, 1980][clock],
        nvmlDeviceGetName=lambda device: f"name of {device}",
        nvmlDeviceGetTotalEnergyConsumption=energy,
    )


def test_energy_is_the_counters_difference_over_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([0, 5_000_000, 5_250_000]))
    meter = EnergyMeter(1)
    meter.start()
    meter.stop()
    result = meter.result(tokens=1000)
    assert result["gpu"] == "name of device 1"
    assert result["joules"] == 250
    assert result["joules_per_token"] == 0.25
    assert result["mean_watts"] > 0
    assert meter.result(tokens=0)["joules_per_token"] is None


def test_a_gpu_is_known_by_its_uuid_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([0, 7]))
    counter = EnergyCounter(UUID(int=1), "--sustained")
    assert counter.name == "name of device GPU-00000000-0000-0000-0000-000000000001"
    assert (counter.millijoules(), counter.sm_mhz()) == (7, 1980)
    with pytest.raises(NvmlError):
        counter.millijoules()


def test_a_gpu_without_the_counter_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([]))
    with pytest.raises(CommandError, match="GPU 0 has no energy counter: Not Supported"):
        EnergyMeter(0)
    with pytest.raises(CommandError, match="--sustained: GPU 1 has no energy counter"):
        EnergyCounter(1, "--sustained")


def test_cpu_time_has_descendants_in_it() -> None:
    burn = f"import subprocess, sys; subprocess.run([{sys.executable!r}, '-c', 'while True: pass'])"
    parent = subprocess.Popen([sys.executable, "-c", burn])
    try:
        watch = watched(f"burn={parent.pid}")
        assert watch == Watched("burn", (parent.pid,))
        wait_until(lambda: len(tree(parent.pid)) == 2, WAIT_S, "a child")
        before = seconds(watch)
        wait_until(lambda: seconds(watch) - before > 0.3, WAIT_S, "CPU time")
    finally:
        for pid in tree(parent.pid):
            os.kill(pid, 9)
        parent.wait()
    assert seconds(watch) == 0


@pytest.mark.parametrize("text", ["", "a", "a=", "=1", "a=b", "a=1,,2"])
def test_what_is_not_watched(text: str) -> None:
    with pytest.raises(ValueError, match="is not NAME=PID"):
        watched(text)
