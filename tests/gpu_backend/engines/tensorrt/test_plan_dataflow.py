"""Steps with TensorRT's plans in them compute what the model says, whatever their shape, in buffers that have
room, and no plan writes what it reads (symbolic_step.py, symbolic_plan.py)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from small_models import DENSE
from symbolic_step import SymbolicStep, loads

from gpu_backend.cuda.chip import HOPPER, SERVED, Capability, Chip
from gpu_backend.engines.base import Limits
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.tensorrt.step import lower_step
from gpu_backend.models.registry import read_model
from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.launch import Launch, PlanCall

MODELS = {
    "dense": DENSE,
    "float16 in llama": {**DENSE, "architectures": ["LlamaForCausalLM"], "dtype": "float16"},
    "tied": {**DENSE, "tie_word_embeddings": True},
    "bias and windows": {
        **DENSE,
        "architectures": ["Qwen2ForCausalLM"],
        "use_sliding_window": True,
        "sliding_window": 100,
        "max_window_layers": 1,
    },
    "norms behind sublayers": {
        **DENSE,
        "architectures": ["Gemma3ForCausalLM"],
        "head_dim": 256,
        "sliding_window": 64,
        "sliding_window_pattern": 2,
    },
    "one layer": {**DENSE, "num_hidden_layers": 1},
    "an even number of layers": {**DENSE, "num_hidden_layers": 4},
}
LIMITS = Limits(20, 512, 100, 4, page_size=16, total_pages=64, host_pages=16, copied_pages=8, max_drafts=2)


def symbolic(config: dict[str, object], directory: Path, chip: Chip) -> SymbolicStep:
    (directory / "config.json").write_text(json.dumps(config))
    return SymbolicStep(read_model(directory), LIMITS, GraphGrid(LIMITS).shapes, chip, lower_step)


@pytest.mark.parametrize("capability", SERVED)
@pytest.mark.parametrize("model", MODELS)
def test_every_batch_slot_gets_its_logits(model: str, capability: Capability, tmp_path: Path) -> None:
    """With the kernels of each GPU between the plans."""
    step = symbolic(MODELS[model], tmp_path, Chip(132 if capability == HOPPER else 84, capability))
    for shape in GraphGrid(LIMITS).shapes[:-1]:  # the last copies pages
        for load in loads(shape, LIMITS):
            logits = step.run(shape, load)
            for batch_slot, token in enumerate(load.last):
                assert logits[batch_slot] == step.expected(token), f"slot {batch_slot} of {load} in {shape}"


def test_nothing_but_plans_computes_norms_and_matmuls(tmp_path: Path) -> None:
    """A plan more than there are layers; a kernel behind a plan does not overlap it, and the others do as in
    the native engine."""
    step = symbolic(DENSE, tmp_path, Chip(132))
    for shape in GraphGrid(LIMITS).shapes[:-1]:
        choices: list[Choice] = lower_step(step.model, shape)
        works = [work for choice in choices for work in choice.launches]
        plans = [work for work in works if isinstance(work, PlanCall)]
        assert len(plans) == DENSE["num_hidden_layers"] + 1
        kernels = " ".join(work.kernel for work in works if isinstance(work, Launch))
        assert not any(name in kernels for name in ("norm", "gemv", "gemm", "silu"))
        for before, work in pairwise(works):
            if isinstance(work, Launch):
                assert work.overlap == (not isinstance(before, PlanCall))


def test_layers_that_are_alike_share_a_plan(tmp_path: Path) -> None:
    """Between the first and the last, whatever the number of layers; and shapes of as many rows do."""
    step = symbolic({**DENSE, "num_hidden_layers": 5}, tmp_path, Chip(132))
    keys: dict[object, set[int]] = {}
    for shape in GraphGrid(LIMITS).shapes[:-1]:
        works = [work for choice in lower_step(step.model, shape) for work in choice.launches]
        calls = [work for work in works if isinstance(work, PlanCall)]
        assert len({call.key for call in calls}) == 3
        assert len({call.key for call in calls[1:-1]}) == 1
        for call in calls:
            keys.setdefault(call.key, set()).add(call.writes[0][1].rows)
    assert all(len(rows) == 1 for rows in keys.values())
