#!/usr/bin/env python3
"""Several servers at a time in one machine, each on a GPU and 16 cores of its own: a lane.

    scripts/bench/lanes.py --vllm vllm.tar.xz --parts closed vllm:llama-3-8b+gpu-apart:llama-3-8b
    scripts/bench/lanes.py --vllm vllm.tar.xz --parts closed,interference {vllm,gpu-apart}:llama-3.2-1b
    scripts/bench/lanes.py --parts interference gpu:llama-3.2-1b async:llama-3.2-1b

A lane is SERVER:MODEL, or several with + that take turns on its GPU. Servers are vllm; blink under one of
its schedulers, gpu, blocking, pipelined or async; gpu-realtime, whose frontends share the disturbed cores
and run before all else there; and gpu-apart, whose frontends have cores of their own, as if on a DPU. Of a
lane's cores 10 are the server's, which antagonists disturb, 2 those of frontends apart, and 4 make the
load. A preset is a part that is measured alone, and with --seconds under as many of its loads as fit: which
remain is said. Lanes share caches and memory, so all are disturbed in step. Every turn is a call of peers.py,
whose results lie in --out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.peers import DRAIN_S, LANES, RATES, USERS  # noqa: E402
from bench.preset_parts import OVERHEAD_S, fitting, is_preset, preset_windows  # noqa: E402
from bench.servers import unpacked  # noqa: E402

from blink.bench.options import many, rate  # noqa: E402
from blink.flags import checked, seconds  # noqa: E402

CORES, SERVER_CORES, FRONTEND_CORES = 16, 10, 2  # of a lane
SCHEDULERS = ("gpu", "blocking", "pipelined", "async")
SERVERS = ("vllm", "gpu-apart", "gpu-realtime", *SCHEDULERS)
START_S = {"vllm": 95.0}  # until a server is ready and warm
BLINK_START_S = 25.0
LIMIT_S = 900.0  # of one turn
WINDOW_S = 15.0
STOP_S = 10.0  # of a server


@dataclass(frozen=True)
class Turn:
    """A server with its load."""

    server: str
    model: str

    def flags(self, vllm: Path | None) -> list[str]:
        """Of peers.py."""
        flags = [f"--name={self.server}", f"--model={self.model}"]
        if self.server == "vllm":
            return ["--server=vllm", f"--vllm={vllm}", *flags]
        scheduler, _, where = self.server.partition("-")
        if where == "realtime":
            flags.append("--server-flag=--frontend-realtime=1")
        return ["--server=blink", f"--server-flag=--scheduler={scheduler}", *flags]


def turns(text: str) -> list[Turn]:
    """Of a lane, "vllm:llama-3-8b+gpu:llama-3-8b". Raises ValueError."""
    found = []
    for part in text.split("+"):
        server, _, model = part.partition(":")
        if server not in SERVERS or not model:
            raise ValueError(f"'{part}' is not SERVER:MODEL, with a server of {', '.join(SERVERS)}")
        found.append(Turn(server, model))
    return found


def cores(lane: int, turn: Turn) -> list[str]:
    """Where a turn's parts run, as flags of peers.py."""
    first = CORES * lane
    apart = first + SERVER_CORES
    clients = apart + FRONTEND_CORES
    flags = [f"--server-cores={first}-{apart - 1}", f"--client-cores={clients}-{first + CORES - 1}"]
    return [*flags, f"--frontend-cores={apart}-{clients - 1}"] if turn.server == "gpu-apart" else flags


def begin_of_antagonists(now: float, lanes: list[list[Turn]], options: argparse.Namespace) -> float:
    """When all lanes must have come to them, Unix time."""
    starts = (START_S.get(lane[0].server, BLINK_START_S) for lane in lanes)
    wait_s = max(starts)
    for part in options.parts[: options.parts.index("interference")]:
        fixed = {"closed": options.concurrency, "conversations": USERS, "agents": LANES}
        windows = [fixed.get(part) or options.rates or RATES[turn.model] for (turn,) in lanes]
        wait_s += max(len(n.split(",")) for n in windows) * (options.window + DRAIN_S[part] + OVERHEAD_S)
    return now + wait_s


def preset_flags(lanes: list[list[Turn]], options: argparse.Namespace) -> list[str]:
    """Of peers.py, for what is measured of a preset: of every server the same. Says which loads remain."""
    (preset,) = options.parts
    if options.seconds is None:
        return [] if options.loads is None else [f"--loads={told(options.loads)}"]
    usable_s = options.seconds - max(START_S.values()) - STOP_S
    models = {turn.model for lane in lanes for turn in lane}
    found = [fitting(preset_windows(preset, Path(model).name, options.loads), usable_s) for model in models]
    chosen, remaining = min(found, key=lambda each: len(each[0].loads))
    if remaining:
        print(f"{preset}: {told(chosen.loads)} now; call this again with {told(remaining)}", flush=True)
    return [f"--loads={told(chosen.loads)}"]


def told(loads: Sequence[float]) -> str:
    return ",".join(f"{load:g}" for load in loads)


def run_lane(
    index: int, lane: list[Turn], common: list[str], options: argparse.Namespace, failed: list[str]
) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(index)}
    limit_s = options.seconds or LIMIT_S
    for turn in lane:
        flags = [*turn.flags(options.vllm), *cores(index, turn), f"--bench-flag=--gpu={index}", *common]
        command = [sys.executable, str(ROOT / "scripts/bench/peers.py"), *flags]
        with (options.out / f"lane-{index}.log").open("a") as log:
            try:
                done = subprocess.run(
                    command, env=environment, stdout=log, stderr=log, timeout=limit_s, check=False
                )
            except subprocess.TimeoutExpired:
                failed.append(f"{turn.server}:{turn.model}: not done after {limit_s:.0f} s, see {log.name}")
                continue
        if done.returncode:
            failed.append(f"{turn.server}:{turn.model}: status {done.returncode}, see {log.name}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lanes", nargs="+", type=checked(turns), metavar="LANE")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=["closed"], help="of peers.py")
    parser.add_argument("--vllm", type=Path, metavar="PATH", help="archive with site/, or a directory")
    parser.add_argument("--concurrency", default="1,8,32,64", help="of the part closed")
    parser.add_argument(
        "--rates", help="of the parts open and interference (default: peers.py's of the model)"
    )
    parser.add_argument("--per-core", default="0,1,4,8", help="of the part interference")
    parser.add_argument(
        "--window", type=float, metavar="SECONDS", help=f"(default: {WINDOW_S:g}; of a preset, as it needs)"
    )
    parser.add_argument(
        "--loads",
        type=checked(many(rate)),
        metavar="N[,N...]",
        help="of a preset, some of its (default: all)",
    )
    parser.add_argument("--seconds", type=checked(seconds), help="of a preset, that a server may take")
    parser.add_argument("--server-flag", action="append", default=[], help="of every server, of both kinds")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    return parser.parse_args()


def main() -> int:
    options = parse()
    lanes: list[list[Turn]] = options.lanes
    is_disturbed = "interference" in options.parts
    if is_disturbed and any(len(lane) > 1 for lane in lanes):
        raise SystemExit("interference: lanes are disturbed in step, so each has one server")
    has_preset = any(map(is_preset, options.parts))
    if has_preset and len(options.parts) > 1:
        raise SystemExit("a preset is measured alone: give no other --parts")
    if not has_preset and (options.loads or options.seconds):
        raise SystemExit("--loads and --seconds are of a preset")
    of_preset = preset_flags(lanes, options) if has_preset else []
    if options.window is None and not has_preset:
        options.window = WINDOW_S
    if any(turn.server == "vllm" for lane in lanes for turn in lane):
        if options.vllm is None:
            raise SystemExit(
                "a lane with vllm needs --vllm: an archive of an installed vLLM, or its directory"
            )
        options.vllm = unpacked(options.vllm)  # once, not a lane each
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.absolute()
    common = [
        *(f"--server-flag={flag}" for flag in options.server_flag),
        f"--part={','.join(options.parts)}", f"--concurrency={options.concurrency}",
        f"--per-core={options.per_core}", f"--out={options.out}", f"--commit={options.commit}",
        "--bench-flag=--energy", *of_preset,
    ]  # fmt: skip
    if options.window is not None:
        common.append(f"--window={options.window:g}")
    if options.rates:
        common.append(f"--rates={options.rates}")
    if is_disturbed:
        common.append(f"--begin={begin_of_antagonists(time.time(), lanes, options):.0f}")
    failed: list[str] = []
    threads = [
        threading.Thread(target=run_lane, args=(index, lane, common, options, failed))
        for index, lane in enumerate(lanes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
