"""The other end of the ring in `blink bench transport`: a process that makes a ring and starts the echo.

`python -m blink.bench.echo_peer RING ...` is started by EchoPeer alone. Like a backend, it takes no part once
the echo runs on a GPU.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from blink import child
from gpu_backend.devices.base import DeviceError
from gpu_backend.devices.select import select_device
from ringbuffer.abi import COPY_ENGINE_BYTES, OUTPUT_GRANULE, PROMPT_GRANULE, SLOT_ALIGNMENT, Control
from ringbuffer.name import RingError
from ringbuffer.region import Geometry, ModelFacts, ring_path, rounded_up

START_S = 120.0  # on a GPU the echo is compiled first
STOP_S = 10.0
PAGE_SIZE = 16
ECHO_FINGERPRINT = bytes(32)  # it serves no model


class PeerFailed(RuntimeError):
    """The echo cannot run here; what the process said."""


class EchoPeer:
    """The process, from the constructor to `close`. Raises PeerFailed."""

    def __init__(self, ring: str, transport: str, device: str, geometry: Geometry, step_us: int) -> None:
        self.path = ring_path(ring)
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed by close()
        read_end, write_end = os.pipe()
        lease, self._lease_end = os.pipe()
        command = [
            sys.executable, "-m", "blink.bench.echo_peer", ring, f"--transport={transport}",
            f"--device={device}", f"--slots={geometry.n_slots}", f"--prompts={geometry.prompt_heap}",
            f"--outputs={geometry.output_heap}", f"--step-us={step_us}",
            f"--lease-fd={lease}", f"--ready-fd={write_end}",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stderr=self._said, pass_fds=(write_end, lease))
        os.close(write_end)
        os.close(lease)
        try:
            ready, _, _ = select.select([read_end], [], [], START_S)
            if not ready or not os.read(read_end, 16):
                raise PeerFailed(self._last_words() if ready else f"not ready after {START_S:g} s")
        except BaseException:
            self.close()
            raise
        finally:
            os.close(read_end)

    def _last_words(self) -> str:
        self.process.wait(STOP_S)
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return lines[-1] if lines else f"the echo ended with exit status {self.process.returncode}"

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(2 * STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.path.unlink(missing_ok=True)  # one that was killed, or did not stop, leaves it
        os.close(self._lease_end)
        self._said.close()

    def __enter__(self) -> EchoPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ring_geometry(streams: int, prompt_tokens: int, tokens: int) -> Geometry:
    """A ring with one lease, whose heaps have as much for each slot, and room for padded copies."""
    slots = -(-streams // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
    prompt = rounded_up(max(prompt_tokens, COPY_ENGINE_BYTES // 4), PROMPT_GRANULE)
    return Geometry(slots, 1, slots * prompt, slots * rounded_up(tokens, OUTPUT_GRANULE))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("ring")
    parser.add_argument("--transport")
    parser.add_argument("--device")
    for name in ("slots", "prompts", "outputs", "step-us"):
        parser.add_argument(f"--{name}", type=int)
    child.add_child_flags(parser)
    arguments = parser.parse_args()
    # Before there is another thread, which would take a signal that the main one has not yet asked for.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    child.end_with_parent(arguments.lease_fd)
    geometry = Geometry(arguments.slots, 1, arguments.prompts, arguments.outputs)
    try:
        with ExitStack() as owned:
            serve(arguments, geometry, ring_path(arguments.ring), owned)
    except (DeviceError, RingError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def serve(arguments: argparse.Namespace, geometry: Geometry, path: Path, owned: ExitStack) -> None:
    """Until SIGTERM."""
    device = select_device(arguments.device)
    owned.callback(device.close)
    slots = geometry.n_slots
    facts = ModelFacts(
        ECHO_FINGERPRINT,
        "echo",
        device.name,
        (1 << 32) - 1,
        geometry.prompt_heap // slots,
        slots,
        slots,
        PAGE_SIZE,
    )
    ring, address = device.make_ring(arguments.transport, path, geometry, facts, owned)
    echo = device.start_echo(address, geometry.n_slots, arguments.step_us * 1000)
    child.report_ready(arguments.ready_fd)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    ring.set_control(Control.STOP)
    if not echo.wait(STOP_S):
        print("the echo does not stop", file=sys.stderr)
        os._exit(1)  # what it still writes to must not be released
    echo.close()


if __name__ == "__main__":
    sys.exit(main())
