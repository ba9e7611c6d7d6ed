#!/usr/bin/env python3
"""Serves a model with blink or with vLLM, and measures both under the same load.

    python scripts/bench/peers.py --server blink --model llama-3-8b --part closed,open
    python scripts/bench/peers.py --server vllm --vllm vllm.tar.xz --model llama-3-8b --part closed,open
    python scripts/bench/peers.py --server blink --model llama-3-8b --part conversations --window 60

A model is a directory, or a name of scripts/bench/shapes with random weights of that shape. Parts: `closed`
(1024 tokens in, 256 out, by concurrency), `open` (Poisson, the paper's lengths, by rate), `interference` (a
rate that every server can take, by antagonists on the server's cores), `conversations` (six turns behind a
system prompt of 2048 tokens, 256 tokens in and 128 out, by users), `agents` (sessions of up to 32,768 tokens,
by lanes; with it and the one before, vLLM runs with its prefix cache, else without), `burst` (so many prompts
of 1024 tokens at once, and no more), and the presets of `blink bench serve`, whose contexts, windows and
drains follow from the preset. The server starts once, on its
own cores. Each part leaves one OUT/NAME-MODEL-PART.json: what `blink bench serve --json` writes, and under
"run" how the server was run. Servers on several GPUs of one machine may be disturbed together: with the same
--begin, their windows under antagonists are in step.

No tokenizer is in the measurement: prompts are token ids. vLLM runs without detokenizing, its text is empty
(--skip-tokenizer-init); blink has to detokenize, for random weights with a made vocabulary whose every token
is one short word, so that each token is an event in both.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.bench_serve import Client, bench_serve  # noqa: E402
from bench.preset_parts import OVERHEAD_S, is_preset, preset_windows  # noqa: E402
from bench.servers import Blink, Server, Vllm, make_model  # noqa: E402
from bench.shape import SHAPES  # noqa: E402

from blink.bench.antagonists import KINDS  # noqa: E402
from blink.bench.options import many, rate  # noqa: E402
from blink.bench.presets import PRESETS  # noqa: E402
from blink.flags import checked, cores  # noqa: E402

CONCURRENCY = "1,8,32,64,128"
RATES = {  # requests/s, up to beyond what the fastest server takes of each shape
    "llama-3.2-1b": "8,16,24,32,40",
    "llama-3-8b": "2,5,8,11,14",
    "qwen3-8b": "2,5,8,11,14",
    "phi-4": "1,3,5,7,9",
    "qwen3-32b": "0.5,1,2,3,4",
    "qwen3-30b-a3b": "1,2,4,6,8",
}
CALM_RATES = {"llama-3.2-1b": "12", "llama-3-8b": "5", "qwen3-8b": "5", "phi-4": "3", "qwen3-32b": "1",
              "qwen3-30b-a3b": "2"}  # fmt: skip
PER_CORE = "0,1,4,8"
DRAIN_S = {"closed": 8.0, "open": 8.0, "interference": 10.0, "conversations": 30.0, "agents": 30.0,
           "burst": 30.0}  # fmt: skip
BURSTS = "64,128"
USERS, EACH = "1,16,64", "8,2,1"  # conversations of each user, so that few users are asked often enough, too
LANES = "8,32"
PRIMED = 0.2  # of a window of agents, in which the histories that their lanes begin with are computed
WINDOW_S = 30.0
WITH_PREFIXES = {"conversations", "agents"}  # parts whose prompts begin alike: vLLM's prefix cache is on
SPARE_S = 120.0  # for the warm-up and whatever else takes longer than it should


def part_flags(part: str, model: str, arguments: argparse.Namespace) -> tuple[list[str], int]:
    """The load's flags, and in how many windows; of a part that is no preset."""
    rates = arguments.rates or (CALM_RATES if part == "interference" else RATES).get(model)
    if part in ("open", "interference") and rates is None:
        raise SystemExit(f"--rates is needed: none are known for the model {model}")
    if part == "conversations":
        turns = [f"--conversations={USERS}", f"--each={EACH}", "--turns=6", "--system=2048"]
        return [*turns, "--input=256", "--output=128"], len(USERS.split(","))
    if part == "agents":
        return [f"--agents={LANES}", f"--drop={PRIMED}"], len(LANES.split(","))
    if part == "burst":
        turns = [f"--conversations={BURSTS}", "--turns=1", "--system=0"]
        return [*turns, "--input=1024", "--output=128"], len(BURSTS.split(","))
    if part == "closed":
        chosen = arguments.concurrency
        return [f"--concurrency={chosen}", "--input=1024", "--output=256"], len(chosen.split(","))
    if part == "open":
        return [f"--rate={rates}"], len(rates.split(","))
    levels = arguments.per_core
    antagonists = [f"--antagonists={','.join(KINDS)}", f"--per-core={levels}"]
    chosen_cores = f"--cores={','.join(map(str, arguments.server_cores))}"
    return [f"--rate={rates}", *antagonists, chosen_cores], len(rates.split(",")) * len(levels.split(","))


def measure(server: Server, part: str, model: str, arguments: argparse.Namespace) -> None:
    """One part. Leaves its JSON."""
    name = arguments.name or server.name
    file_name, warm_up_s = f"{name}-{model}-{part}", 0.0
    if is_preset(part):
        preset = preset_windows(part, model, arguments.loads)
        flags, windows, warm_up_s = preset.flags, len(preset.loads), preset.warm_up_s
        window, drain = preset.window_s, preset.drain_s
        if not preset.is_whole:
            file_name += "-" + "-".join(f"{load:g}" for load in preset.loads)
    else:
        flags, windows = part_flags(part, model, arguments)
        window, drain = WINDOW_S, DRAIN_S[part]
    window = window if arguments.window is None else arguments.window
    drain = drain if arguments.drain is None else arguments.drain
    longest = window + drain + OVERHEAD_S
    if part == "interference" and arguments.begin is not None:
        flags.append(f"--every={longest:g}")
        time.sleep(max(0.0, arguments.begin - time.time()))
    out = arguments.out / f"{file_name}.json"
    client = Client(arguments.client_cores, arguments.clients, arguments.seed)
    flags += arguments.bench_flag or []
    try:
        result = bench_serve(
            server, name, out, client, window, drain, flags, windows * longest + warm_up_s + SPARE_S
        )
    except SystemExit as failure:
        if not out.exists():
            raise SystemExit(f"{part}: {failure}") from None
        print(f"{part}: {failure}: a window is there in which no request was completed", flush=True)
        result = json.loads(out.read_text())
    result["run"] = {
        "commit": arguments.commit,
        "model": model,
        "random_weights": server.random_weights,
        "server_command": server.shown_command(),
        "server_cores": list(arguments.server_cores),
        "frontend_cores": list(arguments.frontend_cores or ()),
        "server_start_s": server.start_s,
        "gpu": gpu(),
        "versions": versions(),
    }
    out.write_text(json.dumps(result, indent=1) + "\n")


def gpu() -> str | None:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    if shutil.which(query[0]) is None:
        return None
    return subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout.strip()


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "uvicorn", "uvloop", "transformers", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=("blink", "vllm"), required=True)
    parser.add_argument("--model", required=True, help="a directory, or a name of scripts/bench/shapes")
    parser.add_argument(
        "--part",
        default="closed",
        help="closed, open, interference, conversations, agents, burst, or presets; several with commas",
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument(
        "--window",
        type=float,
        metavar="SECONDS",
        help="length of each window; of conversations, until the last turn (default: 30; of presets, as long "
        "as their longest requests take)",
    )
    parser.add_argument(
        "--drain", type=float, metavar="SECONDS", help="for what is open at a window's end (default: by part)"
    )
    parser.add_argument("--begin", type=float, metavar="TIME", help="of the part interference, Unix time")
    parser.add_argument("--name", help="of the server in results (default: blink or vllm)")
    parser.add_argument("--start-timeout", type=float, default=240.0, metavar="SECONDS")
    parser.add_argument("--vllm", type=Path, metavar="PATH", help="archive with site/, or a directory")
    parser.add_argument("--server-cores", type=checked(cores), default="0-11")
    parser.add_argument(
        "--frontend-cores", type=checked(cores), help="of blink's frontends, instead of the server's"
    )
    parser.add_argument("--client-cores", type=checked(cores), default="12-15")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--frontends", type=int, default=2, help="of blink")
    parser.add_argument("--concurrency", default=CONCURRENCY, help="of the part closed")
    parser.add_argument("--rates", help="of the parts open and interference")
    parser.add_argument(
        "--loads",
        type=checked(many(rate)),
        metavar="N[,N...]",
        help="of presets, some of theirs (default: all)",
    )
    parser.add_argument(
        "--per-core", default=PER_CORE, help="antagonist threads on each of the server's cores"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", default="unknown", help="what is measured, for the record")
    parser.add_argument(
        "--stop-backend", action="store_true", help="of blink, by SIGSTOP, while it is measured"
    )
    parser.add_argument("--server-flag", action="append", help="one more flag for the server")
    parser.add_argument("--bench-flag", action="append", help="one more flag for blink bench serve")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    parts = arguments.part.split(",")
    if unknown := set(parts) - DRAIN_S.keys() - PRESETS.keys():
        raise SystemExit(f"unknown part: {', '.join(unknown)}")
    shape, directory = SHAPES / f"{arguments.model}.json", Path(arguments.model)
    if not shape.exists() and not directory.is_dir():
        raise SystemExit(f"{arguments.model} is no directory, and no shape of {', '.join(sorted(RATES))}")
    name = directory.name
    arguments.prefix_cache = not WITH_PREFIXES.isdisjoint(parts)
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.out = arguments.out.absolute()
    with tempfile.TemporaryDirectory(prefix="blink-peers-") as scratch:
        if shape.exists():
            directory = make_model(shape, Path(scratch, name))
        server = {"blink": Blink, "vllm": Vllm}[arguments.server](arguments, directory, shape.exists())
        with server.running(arguments.out / f"{arguments.name or server.name}-{name}.log"):
            print(f"{server.name} is ready after {server.start_s:.0f} s", flush=True)
            with server.stopped_backend() if arguments.stop_backend else contextlib.nullcontext():
                for part in parts:
                    measure(server, part, name, arguments)


if __name__ == "__main__":
    main()
