#!/usr/bin/env python3
"""Makespans of bursts with transformers' continuous batching, to compare with `blink bench schedulers`.

    scripts/bench/transformers_batching.py --model llama-3.2-1b --makespan 1x1024-256,32x1024-256

Random weights of a shape of scripts/bench/shapes, as large as blink's, in this process, greedy, every answer
of full length. CUDA graphs are on; prefixes are not shared. Synchronous and asynchronous batching one after
the other, or one of them. The first run of each warms up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from blink.bench.scheduler_runs import Workload, parse_workload  # noqa: E402
from blink.bench.schedulers import listed  # noqa: E402
from blink.flags import checked  # noqa: E402
from gpu_backend.engines.native.weights import RANDOM_OUTPUT_STD, RANDOM_STD  # noqa: E402

SHAPES = ROOT / "scripts" / "bench" / "shapes"
LIMIT_S = 60.0  # of one burst, of the start, of the end
BLOCK = 256  # keys; their default
BATCH = 1024  # tokens of a step at most
MODES = {"sync": [False], "async": [True], "both": [False, True]}
MAKESPANS = "1x1024-256,8x1024-256,32x1024-256"


def load(shape: str, device: str = "cuda", **changes: Any) -> Any:
    sizes = json.loads((SHAPES / f"{shape}.json").read_text()) | changes
    config = AutoConfig.for_model(**sizes, initializer_range=RANDOM_STD)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(RANDOM_OUTPUT_STD / RANDOM_STD)
    return model


def answers(manager: Any, work: Workload, began: float, limit_s: float = LIMIT_S) -> float:
    """Seconds until the answers of `work` have arrived."""
    lengths = []
    while len(lengths) < work.requests:
        result = manager.get_result(timeout=1)
        if result is not None and result.is_finished():
            lengths.append(len(result.generated_tokens))
        elif not manager.is_running() or time.monotonic() - began > limit_s:
            raise SystemExit(
                f"{work}: {len(lengths)} answers after {limit_s:g} s, or before its thread ended"
            )
    took = time.monotonic() - began
    if set(lengths) != {work.output}:
        raise SystemExit(f"{work}: answers of {set(lengths)} tokens")
    return took


def prompts_of(work: Workload, seed: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(100, 1000, (work.requests, work.prompt), generator=random).tolist()


def makespan_s(manager: Any, work: Workload, seed: int) -> float:
    prompts = prompts_of(work, seed)
    began = time.monotonic()
    manager.add_requests(inputs=prompts, max_new_tokens=work.output)
    return answers(manager, work, began)


def cache_blocks(works: list[Workload]) -> int:
    """That the largest burst needs. Where no flash attention is installed, asynchronous batching copies a
    mask, of each token of the largest batch by each key of the cache, to the GPU before every step: some
    14 GB with the sizes that transformers 5.17 takes from an H200's memory, a minute for 256 steps."""
    most = max(w.requests * (w.tokens // BLOCK + 2) for w in works)  # one is not full, one is ahead
    return most + most // 4  # with less than 15 % of them free it admits no request


@contextmanager
def running(model: Any, works: list[Workload], is_async: bool, step_tokens: int = BATCH) -> Iterator[Any]:
    """A manager whose thread has answered a request: with an empty queue asynchronous batching does not start
    in some versions (transformers issue 48303)."""
    longest = max(w.output for w in works)
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(max_new_tokens=longest, do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(
            use_cuda_graph=True,
            use_async_batching=is_async,
            allow_block_sharing=False,
            max_batch_tokens=step_tokens,
            block_size=BLOCK,
            num_blocks=cache_blocks(works),
        ),
    )
    manager.add_requests(inputs=[[100]], max_new_tokens=2)
    began = time.monotonic()
    manager.start()
    try:
        answers(manager, Workload(1, 1, 2), began)
        yield manager
    finally:
        manager.stop(block=True, timeout=LIMIT_S)


def measure(model: Any, works: list[Workload], is_async: bool, rounds: int) -> Iterator[dict[str, Any]]:
    with running(model, works, is_async) as manager:
        for work in works:
            first, *times = (makespan_s(manager, work, seed) for seed in range(1 + rounds))
            yield {"async": is_async, "workload": str(work), "seconds": min(times), "first_s": first}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-3.2-1b", help="a name of scripts/bench/shapes")
    parser.add_argument("--makespan", type=checked(listed(parse_workload)), default=MAKESPANS)
    parser.add_argument("--batching", choices=tuple(MODES), default="both")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = load(options.model)
    found: dict[str, Any] = {
        "model": options.model,
        "gpu": torch.cuda.get_device_name(),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "makespans": [],
    }
    for is_async in MODES[options.batching]:
        for result in measure(model, options.makespan, is_async, options.rounds):
            found["makespans"].append(result)
            print(json.dumps(result), flush=True)
            if options.json is not None:  # each time: the next may not end
                options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
