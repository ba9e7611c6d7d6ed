"""Energy of a GPU by its own counter (NVML API reference, nvmlDeviceGetTotalEnergyConsumption)."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from blink.errors import CommandError


class EnergyCounter:
    """The counter, which moves every some tens of milliseconds, of the GPU with this index, or this UUID,
    which does not depend on CUDA_VISIBLE_DEVICES.

    Raises CommandError, in the name of `flag`, where there is no such counter.
    """

    def __init__(self, gpu: int | UUID, flag: str) -> None:
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            if isinstance(gpu, UUID):
                self._device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{gpu}")
            else:
                self._device = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            self.name = str(pynvml.nvmlDeviceGetName(self._device))
            self.millijoules()
        except pynvml.NVMLError as error:
            raise CommandError(f"{flag}: GPU {gpu} has no energy counter: {error}") from error

    def millijoules(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device))

    def sm_mhz(self) -> int:
        """The clock of the multiprocessors, now."""
        return int(self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM))

    def close(self) -> None:
        self._nvml.nvmlShutdown()


class EnergyMeter:
    """Energy between `start` and `stop`. Raises CommandError where there is no such counter.

    The counter's own resolution is some tens of milliseconds: windows should last tens of seconds.
    """

    def __init__(self, gpu: int) -> None:
        self._counter = EnergyCounter(gpu, "--energy")
        self._began = (0.0, 0)
        self._ended = (0.0, 0)

    def _read(self) -> tuple[float, int]:
        return time.monotonic(), self._counter.millijoules()

    def start(self) -> None:
        self._began = self._read()

    def stop(self) -> None:
        self._ended = self._read()

    def result(self, tokens: float) -> dict[str, Any]:
        """joules, mean watts, and joules per token of `tokens` that came in the meantime."""
        seconds = self._ended[0] - self._began[0]
        joules = (self._ended[1] - self._began[1]) / 1e3
        return {
            "gpu": self._counter.name,
            "joules": joules,
            "mean_watts": joules / seconds,
            "joules_per_token": joules / tokens if tokens else None,
        }

    def close(self) -> None:
        self._counter.close()
