#!/usr/bin/env python3
"""Several servers at a time in one machine, each on a GPU and 16 cores of its own: a lane.

    scripts/bench/lanes.py closed --vllm vllm.tar.xz  vLLM, then blink, under closed loops, a model a lane
    scripts/bench/lanes.py load --vllm vllm.tar.xz    both under open loops, then among CPU antagonists
    scripts/bench/lanes.py hosts                      each scheduler of blink among CPU antagonists

Of a lane's cores, 10 are the server's, which antagonists disturb, 2 are for frontends apart, as if on a DPU,
and 4 make the load. Lanes share caches and memory, so all are disturbed in step. A lane is a sequence of
calls of peers.py; their results lie in --out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.peers import DRAIN_S, OVERHEAD_S, RATES  # noqa: E402
from bench.servers import unpacked  # noqa: E402

CORES, SERVER_CORES, FRONTEND_CORES = 16, 10, 2  # of a lane
CLOSED_MODELS = ("llama-3.2-1b", "llama-3-8b", "qwen3-30b-a3b")
LOAD_MODELS = ("llama-3.2-1b", "llama-3-8b")
HOSTS_MODEL = "llama-3.2-1b"  # of the shortest step: where a host's share is largest
APART = "--frontend-cores"
START_S = {"vllm": 100.0, "blink": 40.0}  # until a server is ready and warm
LIMIT_S = 900.0  # of one call
Call = list[str]


def server_flags(server: str, model: str, options: argparse.Namespace) -> Call:
    peer = [f"--vllm={options.vllm}"] if server == "vllm" else []
    return [f"--server={server}", f"--model={model}", *peer]


def closed(options: argparse.Namespace) -> list[list[Call]]:
    part = ["--part=closed", f"--concurrency={options.concurrency}"]
    return [
        [[*server_flags(server, model, options), *part] for server in ("vllm", "blink")]
        for model in options.models or CLOSED_MODELS
    ]


def load(options: argparse.Namespace) -> list[list[Call]]:
    """Open loops; when all lanes must have ended theirs, the antagonists."""
    models = options.models or LOAD_MODELS
    rates = max(len(RATES[model].split(",")) for model in models)
    begin = time.time() + START_S["vllm"] + rates * (options.window + DRAIN_S["open"] + OVERHEAD_S)
    part = ["--part=open,interference", f"--begin={begin:.0f}"]
    return [
        [[*server_flags(server, model, options), *part]] for server in ("vllm", "blink") for model in models
    ]


def hosts(options: argparse.Namespace) -> list[list[Call]]:
    part = ["--part=interference", f"--begin={time.time() + START_S['blink']:.0f}"]
    lanes = [[[*server_flags("blink", HOSTS_MODEL, options), *part, "--name=gpu-apart", APART]]]
    for kind in ("blocking", "pipelined", "async"):
        flags = [f"--name={kind}", f"--server-flag=--scheduler={kind}"]
        lanes.append([[*server_flags("blink", HOSTS_MODEL, options), *part, *flags]])
    return lanes


def run_lane(index: int, calls: list[Call], options: argparse.Namespace, failed: list[str]) -> None:
    first = CORES * index
    apart, clients = first + SERVER_CORES, first + SERVER_CORES + FRONTEND_CORES
    common = [
        f"--out={options.out}", f"--window={options.window:g}", f"--commit={options.commit}",
        f"--server-cores={first}-{apart - 1}", f"--client-cores={clients}-{first + CORES - 1}",
        "--bench-flag=--energy", f"--bench-flag=--gpu={index}",
    ]  # fmt: skip
    for call in calls:
        flags = [f"{APART}={apart}-{clients - 1}" if flag == APART else flag for flag in call]
        command = [sys.executable, str(ROOT / "scripts/bench/peers.py"), *common, *flags]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(index)}
        with (options.out / f"lane-{index}.log").open("a") as log:
            done = subprocess.run(
                command, env=environment, stdout=log, stderr=log, timeout=LIMIT_S, check=False
            )
        if done.returncode:
            failed.append(f"lane {index}, {' '.join(flags)}: status {done.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("closed", "load", "hosts"))
    parser.add_argument("--vllm", type=Path, metavar="PATH", help="archive with site/, or a directory")
    parser.add_argument(
        "--models", type=lambda text: tuple(text.split(",")), help="a lane each, of closed and load"
    )
    parser.add_argument("--concurrency", default="1,8,32,64,128", help="of closed")
    parser.add_argument("--window", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path, default=Path("scripts/bench/results/latest"))
    options = parser.parse_args()
    if options.part != "hosts":
        if options.vllm is None:
            raise SystemExit(
                f"{options.part} needs --vllm: an archive of an installed vLLM, or its directory"
            )
        options.vllm = unpacked(options.vllm)  # once, not a lane each
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.absolute()
    lanes = {"closed": closed, "load": load, "hosts": hosts}[options.part](options)
    failed: list[str] = []
    threads = [
        threading.Thread(target=run_lane, args=(index, calls, options, failed))
        for index, calls in enumerate(lanes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
