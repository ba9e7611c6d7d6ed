"""The reference engine's logits against transformers in fp32 (kernels/README.md: E3, E4, E5)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from limits import WAIT_S
from model_factory import (
    DYNAMIC_ROPE,
    LINEAR_ROPE,
    LLAMA3_ROPE,
    YARN_ROPE,
    as_gemma3_conditional,
    as_mistral3_conditional,
    as_published,
    longrope,
    make_model,
)
from reference_rig import LIMITS, Rig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from gpu_backend.engines.base import Limits
from gpu_backend.weights.safetensors import CheckpointError

MODELS: dict[str, dict[str, Any]] = {
    "llama": {"family": "llama"},
    "llama-tied": {"family": "llama", "tie_word_embeddings": True},
    "llama-mha": {"family": "llama", "num_key_value_heads": 6},
    "llama-llama3-rope": {"family": "llama", "rope_parameters": LLAMA3_ROPE},
    "llama-bf16": {"family": "llama", "dtype": torch.bfloat16},
    "llama-fp16": {"family": "llama", "dtype": torch.float16},
    "qwen3": {"family": "qwen3"},
    "qwen3-tied-bf16": {"family": "qwen3", "tie_word_embeddings": True, "dtype": torch.bfloat16},
    "phi3": {"family": "phi3"},
    "phi3-tied-fp16": {"family": "phi3", "tie_word_embeddings": True, "dtype": torch.float16},
    "qwen3-moe": {"family": "qwen3-moe"},
    "qwen3-moe-some-dense": {"family": "qwen3-moe", "num_hidden_layers": 4, "decoder_sparse_step": 2},
    "qwen3-moe-plain-bf16": {
        "family": "qwen3-moe",
        "norm_topk_prob": False,
        "mlp_only_layers": [0],
        "tie_word_embeddings": True,
        "dtype": torch.bfloat16,
    },
    "mistral": {"family": "mistral"},
    "mistral-window": {"family": "mistral", "sliding_window": 24},
    "ministral": {"family": "ministral"},
    "gpt-oss": {"family": "gpt-oss"},
    "gpt-oss-rope-bf16": {"family": "gpt-oss", "dtype": torch.bfloat16, "hidden_size": 288},
    "gpt-oss-rope-four-of-32": {
        "family": "gpt-oss",
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "num_attention_heads": 16,
        "sliding_window": 7,
    },
    "ministral3-rope": {"family": "ministral3"},
    "ministral3-rope-bf16-window": {
        "family": "ministral3",
        "sliding_window": 30,
        "dtype": torch.bfloat16,
    },
    "qwen2": {"family": "qwen2"},
    "qwen2-window-bf16": {
        "family": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 20,
        "max_window_layers": 1,
        "dtype": torch.bfloat16,
    },
    "qwen3-yarn": {"family": "qwen3", "rope_parameters": YARN_ROPE},
    "llama-linear-rope": {"family": "llama", "rope_parameters": LINEAR_ROPE},
    "phi3-window": {"family": "phi3", "sliding_window": 30},
    "phi4-mini": {
        "family": "phi3",
        "tie_word_embeddings": True,
        "rope_parameters": {**longrope(6, LIMITS.max_context), "partial_rotary_factor": 0.75},
        "original_max_position_embeddings": LIMITS.max_context,
    },
    "gemma3": {"family": "gemma3"},
    "gemma3-bf16": {"family": "gemma3", "dtype": torch.bfloat16},
    "gemma3-head-256": {"family": "gemma3", "head_dim": 256, "query_pre_attn_scalar": 256},
}
# The first of each family; the others are slow together.
FIRST = {settings["family"]: name for name, settings in reversed(MODELS.items())}.values()


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name not in FIRST)) for name in MODELS],
    scope="module",
)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("model")
    oracle = make_model(directory, **MODELS[request.param])
    if (
        "rope" not in request.param
    ):  # published models are in the form of before transformers 5, but for new ones
        as_published(directory)
    rig = Rig(directory, oracle)
    yield rig
    rig.close()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp("llama")
    return directory, make_model(directory, "llama")


def test_prefill_whole_then_decode(rig: Rig) -> None:
    rig.driver.start(0, rig.prompt(100, seed=1))
    assert rig.prefill([(0, 0, 100)]) != [None]
    for _ in range(4):
        rig.decode([0])


def test_prefill_in_chunks(rig: Rig) -> None:
    """A chunk that does not end its prompt samples nothing, and a later chunk reads it through the pages."""
    rig.driver.start(1, rig.prompt(75, seed=2))
    assert rig.prefill([(1, 0, 1)]) == [None]
    assert rig.prefill([(1, 1, 33)]) == [None]
    assert rig.prefill([(1, 33, 75)]) != [None]
    assert len(rig.driver.history(1)) == 76


def test_packed_rows_and_batched_decode(rig: Rig) -> None:
    """Prompts of several rows in one step, one a middle chunk; then decode at padded batch sizes."""
    lengths = {3: 40, 2: 17, 5: 1, 7: 50}
    for row, n in lengths.items():
        rig.driver.start(row, rig.prompt(n, seed=10 + row))
    rig.prefill([(7, 0, 20)])
    tokens = rig.prefill([(3, 0, 40), (2, 0, 17), (7, 20, 35), (5, 0, 1)])
    assert [token is None for token in tokens] == [False, False, True, False]
    rig.prefill([(7, 35, 50)])
    for rows in ([3], [2, 3], [5, 7, 2], [7, 3, 5, 2]):
        rig.decode(rows)
        assert [rig.driver.history(row) for row in rows] == [rig.driver.tokens[row] for row in rows]


def test_prompts_and_rows_that_decode_share_a_step(rig: Rig) -> None:
    for row, n in {3: 40, 2: 17, 5: 90}.items():
        rig.driver.start(row, rig.prompt(n, seed=30 + row))
    rig.prefill([(3, 0, 40), (2, 0, 17)])
    rig.mixed([2, 3], [(5, 0, 50)])
    rig.mixed([3], [(5, 50, 90)])
    rig.decode([5, 2, 3])


def test_drafts_are_checked_in_one_step(rig: Rig) -> None:
    """E27: of some rows all drafts are right, of others the first, or none, or there are none. Then they go
    on as if each had decoded its tokens one by one."""
    lengths = {0: 40, 1: 17, 2: 1, 3: 90}
    for row, n in lengths.items():
        for copy in (row, row + 4):
            rig.driver.start(copy, rig.prompt(n, seed=50 + row))
        rig.prefill([(row, 0, n)])
        rig.prefill([(row + 4, 0, n)])
    for _ in range(4):
        rig.decode(list(lengths))
    right = {row: rig.driver.tokens[row][n + 1 : n + 4] for row, n in lengths.items()}
    wrong = {row: [(token + 1) % rig.vocab_size for token in tokens] for row, tokens in right.items()}
    first_right = [right[1][0], *wrong[1][1:]]
    rig.verify([(4, right[0]), (5, first_right), (6, wrong[2]), (7, [])])
    rig.decode([7, 6, 5, 4])
    for row, n_known in enumerate((4, 2, 1, 1)):
        tokens = rig.driver.tokens[row + 4]
        assert len(tokens) == lengths[row] + 1 + n_known + 1
        assert tokens[:-1] == rig.driver.tokens[row][: len(tokens) - 1]
        assert rig.driver.history(row + 4) == tokens


def test_pages_come_back_from_host_memory(rig: Rig) -> None:
    """E25: keys and values of all layers, to other pages than they left."""
    rig.driver.start(0, rig.prompt(70, seed=40))
    rig.prefill([(0, 0, 70)])
    rig.driver.travel(0)
    rig.decode([0])
    rig.decode([0])


def test_result_does_not_depend_on_threads(llama: tuple[Path, Any]) -> None:
    logits = []
    for threads in (1, 2, 3):
        rig = Rig(*llama, threads=threads)
        rig.driver.start(0, rig.prompt(64, seed=3))
        rig.prefill([(0, 0, 64)])
        logits.append(rig.engine.logits(1))
        rig.close()
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_array_equal(logits[0], logits[2])


def test_runs_on_another_thread_than_its_creator(llama: tuple[Path, Any]) -> None:
    rig = Rig(*llama)
    rig.driver.start(0, rig.prompt(30, seed=4))
    thread = threading.Thread(target=rig.prefill, args=([(0, 0, 30)],))
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert len(rig.driver.tokens[0]) == 31
    rig.close()


def test_answer_up_to_the_end_of_the_context(llama: tuple[Path, Any]) -> None:
    """The last token of a full context is sampled but has no place in the history."""
    limits = Limits(
        max_batch=1, max_context=20, max_prefill_tokens=16, max_prefill_slots=1, page_size=16, total_pages=2
    )
    rig = Rig(*llama, limits=limits)
    rig.driver.start(0, rig.prompt(16, seed=5))
    rig.prefill([(0, 0, 16)])
    for _ in range(4):
        rig.decode([0])
    assert len(rig.driver.tokens[0]) == 21
    assert rig.driver.history(0) == rig.driver.tokens[0][:20]
    rig.close()


def test_a_step_out_of_order_is_a_fault(llama: tuple[Path, Any]) -> None:
    """E2: the driver checks head.fault after every step."""
    rig = Rig(*llama)
    rig.driver.start(0, rig.prompt(5, seed=6))
    rig.driver.step_id += 1
    with pytest.raises(AssertionError):
        rig.driver.prefill([(0, 0, 5)])
    rig.close()


def test_logits_before_penalties(llama: tuple[Path, Any]) -> None:
    rig = Rig(*llama)
    prompt = rig.prompt(24, seed=7)
    rig.driver.start(0, prompt, repetition_penalty=1.5)
    rig.prefill([(0, 0, 24)])
    rig.close()


def test_checkpoint_of_another_shape_is_refused(llama: tuple[Path, Any], tmp_path: Path) -> None:
    directory, _ = llama
    (tmp_path / "model.safetensors").symlink_to(directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 168}))
    with pytest.raises(CheckpointError, match=r"gate_proj.*\(336, 96\)"):
        Rig(tmp_path, None)


def check_prompt(rig: Rig, n: int) -> None:
    rig.driver.start(0, rig.prompt(n, seed=9))
    rig.prefill([(0, 0, n)])
    rig.decode([0])
    rig.close()


def test_longrope_takes_one_set_of_factors_for_all_requests(tmp_path: Path) -> None:
    """A server that serves more than the original context takes the long factors from the first token on,
    since cached keys cannot be turned again; transformers takes them once a sequence is longer."""
    original = 128
    rope = {**longrope(6, original), "partial_rotary_factor": 0.75}
    oracle = make_model(tmp_path, "phi3", rope_parameters=rope, original_max_position_embeddings=original)
    as_published(tmp_path)
    rotary = oracle.model.rotary_emb
    rotary.original_inv_freq, _ = ROPE_INIT_FUNCTIONS["longrope"](oracle.config, None, seq_len=original + 1)
    check_prompt(Rig(tmp_path, oracle), 90)


def test_a_dynamic_scaling_takes_the_longest_context_for_all_requests(tmp_path: Path) -> None:
    """transformers scales as a sequence grows; cached keys cannot be turned again."""
    oracle = make_model(tmp_path, "llama", rope_parameters=DYNAMIC_ROPE, max_position_embeddings=128)
    as_published(tmp_path)
    rotary = oracle.model.rotary_emb
    scaled, _ = ROPE_INIT_FUNCTIONS["dynamic"](oracle.config, None, seq_len=LIMITS.max_context)
    assert not torch.allclose(scaled, rotary.inv_freq)
    rotary.inv_freq, rotary.rope_type = scaled, "default"
    check_prompt(Rig(tmp_path, oracle), 90)


def test_the_text_part_of_a_gemma_that_takes_images(tmp_path: Path) -> None:
    oracle = make_model(tmp_path, "gemma3")
    as_published(tmp_path)
    as_gemma3_conditional(tmp_path)
    check_prompt(Rig(tmp_path, oracle), 70)


def test_the_text_part_of_a_ministral_that_takes_images(tmp_path: Path) -> None:
    """With a prompt several times as long as the original context: queries grow within it."""
    oracle = make_model(tmp_path, "ministral3")
    as_mistral3_conditional(tmp_path)
    check_prompt(Rig(tmp_path, oracle), 100)


def test_gemmas_vocabulary(tmp_path: Path) -> None:
    """262,208 tokens, which is more than 2^18; the most likely one may be any of them."""
    oracle = make_model(
        tmp_path, "gemma3", vocab_size=262208, num_hidden_layers=1, layer_types=["full_attention"]
    )
    limits = Limits(
        max_batch=1, max_context=64, max_prefill_tokens=64, max_prefill_slots=1, page_size=16, total_pages=4
    )
    check_prompt(Rig(tmp_path, oracle, limits), 20)


def test_demo_model() -> None:
    directory = Path(__file__).parents[3] / "models" / "demo"
    from transformers import AutoModelForCausalLM

    rig = Rig(directory, AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval())
    rig.driver.start(0, rig.prompt(60, seed=8))
    rig.prefill([(0, 0, 60)])
    for _ in range(8):
        rig.decode([0])
    rig.close()
