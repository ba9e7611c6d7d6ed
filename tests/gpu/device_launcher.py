"""Launches an engine's executables from a kernel, as the scheduler does, and waits for them."""

from __future__ import annotations

import numpy as np
from native_rig import NativeRig

from gpu_backend.cuda.driver import Kernel, Stream
from gpu_backend.cuda.graph import Graph


class DeviceLauncher:
    """A graph whose kernel launches an executable and, behind it, itself: blink_probe_parent."""

    def __init__(self, rig: NativeRig, kernel: Kernel, runs: int) -> None:
        self.rig = rig
        self.kernel = kernel
        self.runs = runs
        self.stream = Stream()
        self.counts = rig.memory.allocate(12)

    def run(self, shape: int, step_set: int) -> None:
        self.rig.memory.write(self.counts, bytes(12))
        executable = int(self.rig.engine.executables[shape][step_set])
        parent = Graph()
        with parent.capture(self.stream):
            self.kernel.launch((1, 1, 1), (1, 1, 1), self.stream, self.counts, executable, self.runs)
        parent.instantiate(self.stream)
        parent.launch(self.stream)
        self.stream.synchronize()
        parent.close()
        parents, _, error = np.frombuffer(self.rig.memory.read(self.counts, 12), np.uint32)
        assert (parents, error) == (self.runs, 0)
