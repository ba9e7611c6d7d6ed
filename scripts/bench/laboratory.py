"""The machine of a sweep: its servers, its load, its other tenants, its energy counter."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bench_serve import Client, bench_serve
from bench.origin import of_gpu, origin
from bench.servers import Blink, Server, Vllm, make_model
from bench.shape import SHAPES
from bench.sweep_plan import INTERFERENCE, OTHERS, OWN, SEED, VARIANTS, Block, Point, Variant
from bench.tenants import Tenants

from blink.bench.antagonists import KINDS
from blink.bench.energy import EnergyCounter
from blink.bench.environment import describe
from blink.bench.loads import load_label
from blink.errors import CommandError

START_S = 180.0  # until a server is given up
SPARE_S = 20.0  # that a point may take longer than planned
DRAW_S = 3.0  # over which the draw of a GPU that does nothing is measured
READ_RATE_S = 60.0  # at most, with a compilation
PER_CORE = 8  # antagonists on each of the server's own cores


@dataclass(frozen=True)
class Cores:
    """Who runs where. A sweep's servers have `whole`. Under interference they have `reserved`, frontends with
    cores of their own have `apart`, and other tenants those behind them.
    """

    whole: tuple[int, ...]
    reserved: tuple[int, ...]
    apart: tuple[int, ...]
    tenants: tuple[int, ...]
    clients: tuple[int, ...]

    @classmethod
    def of(cls, cores: Sequence[int]) -> Cores:
        """Six reserved, as in the Blink paper, two apart, four that make the load. Raises SystemExit where
        too few are left for tenants.
        """
        if len(cores) < 16:
            raise SystemExit(f"{len(cores)} cores: 16 are needed, or --cores, which says who runs where")
        rest = tuple(cores[:-4])
        return cls(rest[:12], rest[:6], rest[6:8], rest[8:], tuple(cores[-4:]))


@dataclass(frozen=True)
class Setting:
    """`blink_flags` and `bench_flags` are more flags of blink's servers, and of `blink bench serve`."""

    cores: Cores
    scratch: Path
    logs: Path  # a directory
    commit: str | None = None
    vllm: Path | None = None
    blink_flags: tuple[str, ...] = ()
    bench_flags: tuple[str, ...] = ()
    clients: int = 2


class Machine:
    """Where a call of a sweep measures."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.call = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:6]}"
        self.has_gpu = bool(of_gpu("name"))
        client = describe()
        idle_watts = self.watts()  # before the GPU is read at full speed: its clocks stay up for a while
        self._origin = origin("sweep", of_gpu("name") or client["processor"], setting.commit) | {
            "card": hashlib.sha256(of_gpu("uuid").encode()).hexdigest()[:8] if self.has_gpu else None,
            "read_tb_per_s": self._read_rate(),
            "idle_watts": idle_watts,
            "client": client,
        }

    def origin(self) -> dict[str, Any]:
        return self._origin

    @contextlib.contextmanager
    def server(self, variant: str, block: Block, within_s: float) -> Iterator[Running]:
        """Raises SystemExit where it does not start, or not within so many seconds."""
        shape, directory = SHAPES / f"{block.model}.json", Path(block.model)
        is_shape = shape.exists()
        if is_shape:
            directory = self.setting.scratch / block.model
            if not directory.exists():
                make_model(shape, directory)
        chosen = VARIANTS[variant]
        arguments = self._arguments(chosen, block.part, min(START_S, within_s))
        server = {"blink": Blink, "vllm": Vllm}[chosen.server](arguments, directory, is_shape)
        with server.running(self.setting.logs / f"{self.call}-{variant}-{directory.name}.log"):
            print(f"{variant} is ready after {server.start_s:.0f} s", flush=True)
            yield Running(self, server, variant, arguments)

    def _arguments(self, variant: Variant, part: str, start_s: float) -> argparse.Namespace:
        """As bench.servers wants them."""
        cores = self.setting.cores
        more = self.setting.blink_flags if variant.server == "blink" else ()
        return argparse.Namespace(
            part=part,
            prefix_cache=variant.prefix_cache,
            vllm=self.setting.vllm,
            server_cores=cores.reserved if part == INTERFERENCE else cores.whole,
            frontend_cores=cores.apart if variant.frontends_apart else None,
            frontends=2,
            start_timeout=start_s,
            server_flag=[*variant.flags, *more],
        )

    def watts(self) -> float | None:
        """What the GPU draws now, on average."""
        if not self.has_gpu:
            return None
        counter = EnergyCounter(0, "--energy")
        began, before = time.monotonic(), counter.millijoules()
        time.sleep(DRAW_S)
        watts = (counter.millijoules() - before) / 1e3 / (time.monotonic() - began)
        counter.close()
        return watts

    def _read_rate(self) -> float | None:
        if not self.has_gpu:
            return None
        command = [sys.executable, str(Path(__file__).with_name("read_rate.py"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=READ_RATE_S, check=True)
            return float(done.stdout)
        except (subprocess.SubprocessError, ValueError):
            return None


class Running:
    """A server that is ready."""

    def __init__(self, machine: Machine, server: Server, variant: str, arguments: argparse.Namespace) -> None:
        self._machine, self._server, self._variant, self._arguments = machine, server, variant, arguments
        self._waiting_watts = machine.watts()

    def measure(self, point: Point) -> dict[str, Any]:
        """What a record has of the point. Raises SystemExit where nothing was measured."""
        setting, key = self._machine.setting, point.key
        print(f"{key.variant} {key.model}, {key.rate:g} requests/s, {key.condition}", flush=True)
        others = Tenants(setting.cores.tenants, setting.scratch) if key.condition == OTHERS else None
        try:
            with others or contextlib.nullcontext():
                result = self._serve(point)
        except CommandError as error:  # of tenants that do not start
            raise SystemExit(str(error)) from error
        (found,) = result["points"]
        found.pop("failed_requests")  # as long as there are failures, and counted by cause
        return {
            "options": result["options"],
            "trace": result["traces"][load_label(key.rate, None)],
            "point": found,
            "tenants": others and others.result,
            "server": {
                "command": self._server.shown_command(),
                "version": self._server.version(),
                "start_s": self._server.start_s,
                "cores": list(self._arguments.server_cores),
                "frontend_cores": list(self._arguments.frontend_cores or ()),
                "waiting_watts": self._waiting_watts,
            },
        }

    def ended(self) -> str | None:
        return self._server.ended()

    def _serve(self, point: Point) -> dict[str, Any]:
        setting, cores = self._machine.setting, self._arguments.server_cores
        flags = [f"--rate={point.key.rate:g}", f"--drop={point.times.drop_s / point.times.window_s:g}"]
        if self._machine.has_gpu:
            flags.append("--energy")
        if point.key.condition == OWN:
            where = ",".join(map(str, cores))
            flags += [f"--antagonists={','.join(KINDS)}", f"--per-core={PER_CORE}", f"--cores={where}"]
        return bench_serve(
            self._server,
            self._variant,
            setting.scratch / "point.json",
            Client(setting.cores.clients, setting.clients, SEED),
            point.times.window_s,
            point.times.drain_s,
            [*flags, *setting.bench_flags],
            point.longest_s + SPARE_S,
            setting.logs / f"{self._machine.call}-load.log",
        )
