"""The CUDA engine computes what transformers computes: whole prompts, chunks, packed prompts, decode."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from demo_model.tasks import sample
from native_rig import NativeRig, Reference, make_limits, open_rig, sharpen_routers
from tokenizers import Tokenizer

from gpu_backend.cuda.driver import Device

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
VOCAB = 1000
COMMON = {"vocab_size": VOCAB, "max_position_embeddings": 2048, "initializer_range": 0.08}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}
MINISTRAL3_ROPE = {
    **YARN_ROPE,
    "original_max_position_embeddings": 64,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}


def llama_sizes() -> dict[str, object]:
    return {
        **COMMON,
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
    }


def llama(**changes: object) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(**{**llama_sizes(), **changes})


def qwen3(**changes: object) -> transformers.Qwen3Config:
    sizes = {
        "hidden_size": 256,
        "intermediate_size": 640,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 128,
    }
    return transformers.Qwen3Config(**{**COMMON, **sizes, **changes})


def phi3(**changes: object) -> transformers.Phi3Config:
    sizes = {
        "hidden_size": 384,
        "intermediate_size": 704,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "eos_token_id": 2,
    }
    return transformers.Phi3Config(**{**COMMON, **sizes, **changes})


def mistral(**changes: object) -> transformers.MistralConfig:
    return transformers.MistralConfig(**{**llama_sizes(), "sliding_window": None, **changes})


def ministral3(**changes: object) -> transformers.Ministral3Config:
    """Queries grow within the prompts."""
    return transformers.Ministral3Config(**{**llama_sizes(), "rope_parameters": MINISTRAL3_ROPE, **changes})


def gpt_oss(**changes: object) -> transformers.GptOssConfig:
    """4 of 24 experts a token, as Qwen3-MoE's here; a window that no tile's edge meets."""
    sizes = {
        **llama_sizes(),
        "hidden_size": 288,
        "intermediate_size": 200,
        "num_local_experts": 24,
        "num_experts_per_tok": 4,
        "sliding_window": 75,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {**YARN_ROPE, "original_max_position_embeddings": 64, "truncate": False},
    }
    return transformers.GptOssConfig(**{**sizes, **changes})


def qwen2(**changes: object) -> transformers.Qwen2Config:
    sizes = {**llama_sizes(), "num_attention_heads": 4}
    sizes.pop("head_dim")
    return transformers.Qwen2Config(**{**sizes, **changes})


def gemma3(**changes: object) -> transformers.Gemma3TextConfig:
    """Local and global layers in turn, a score scale of its own, and a window that no tile's edge meets."""
    sizes = {
        **llama_sizes(),
        "head_dim": 256,
        "num_attention_heads": 4,
        "sliding_window": 75,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "query_pre_attn_scalar": 168,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }
    return transformers.Gemma3TextConfig(**{**sizes, **changes})


def qwen3_moe(**changes: object) -> transformers.Qwen3MoeConfig:
    """8 of 24 experts a token: steps of up to 24 tokens stream the weights, larger ones take the tiles."""
    experts = {
        "num_experts": 24,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 200,
        "norm_topk_prob": True,
    }
    dense = {name: value for name, value in qwen3().to_diff_dict().items() if name != "model_type"}
    return transformers.Qwen3MoeConfig(**{**dense, **experts, **changes})


Make = Callable[[], transformers.PretrainedConfig]
MODELS: dict[str, tuple[Make, str]] = {
    "llama": (lambda: llama(), "bfloat16"),
    "llama-rope-scaling-tied": (
        lambda: llama(rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True),
        "bfloat16",
    ),
    "llama-mha-fp16": (lambda: llama(num_key_value_heads=8), "float16"),
    "llama-head-32-group-12": (
        lambda: llama(hidden_size=384, num_attention_heads=12, num_key_value_heads=1, head_dim=32),
        "bfloat16",
    ),
    "llama-decoder": (  # decode steps of up to 8 rows are one kernel
        lambda: llama(vocab_size=1008, intermediate_size=768),
        "bfloat16",
    ),
    "llama-small-stages": (  # no decoder: all products are wide, from one row on
        lambda: llama(vocab_size=1008, hidden_size=2560, intermediate_size=768, initializer_range=0.025),
        "bfloat16",
    ),
    "qwen3-decoder-group-5": (
        lambda: qwen3(vocab_size=1008, hidden_size=512, intermediate_size=768, num_attention_heads=10),
        "bfloat16",
    ),
    "qwen3": (lambda: qwen3(), "bfloat16"),
    "qwen3-tied-fp16": (lambda: qwen3(tie_word_embeddings=True), "float16"),
    "phi3": (lambda: phi3(), "bfloat16"),
    "phi3-tied-fp16": (lambda: phi3(tie_word_embeddings=True), "float16"),
    "mistral": (lambda: mistral(), "bfloat16"),
    "mistral-window-fp16": (lambda: mistral(sliding_window=100), "float16"),
    "mistral-decoder-yarn": (  # a magnitude in the decode megakernel
        lambda: mistral(vocab_size=1008, intermediate_size=768, rope_parameters=YARN_ROPE),
        "bfloat16",
    ),
    "gpt-oss": (lambda: gpt_oss(), "bfloat16"),
    "gpt-oss-held": (  # o of few rows by the resident GEMV
        lambda: gpt_oss(hidden_size=512, num_attention_heads=16, intermediate_size=192),
        "bfloat16",
    ),
    "gpt-oss-odd": (  # the router is no kernel of its own
        lambda: gpt_oss(hidden_size=520, intermediate_size=72, num_local_experts=5),
        "bfloat16",
    ),
    "ministral3": (lambda: ministral3(), "bfloat16"),
    "ministral3-window-fp16": (lambda: ministral3(sliding_window=100), "float16"),
    "qwen2": (lambda: qwen2(), "bfloat16"),
    "qwen2-head-128-windows": (
        lambda: qwen2(
            num_attention_heads=2,
            num_key_value_heads=1,
            use_sliding_window=True,
            sliding_window=33,
            max_window_layers=1,
            tie_word_embeddings=True,
        ),
        "bfloat16",
    ),
    "qwen3-yarn": (lambda: qwen3(rope_parameters=YARN_ROPE), "bfloat16"),
    "phi3-window-head-96": (
        lambda: phi3(hidden_size=576, sliding_window=90),
        "bfloat16",
    ),
    "phi4-mini": (
        lambda: phi3(
            tie_word_embeddings=True,
            original_max_position_embeddings=512,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0 + 0.05 * i for i in range(24)],
                "long_factor": [2.0 + 0.5 * i for i in range(24)],
            },
        ),
        "bfloat16",
    ),
    "gemma3": (lambda: gemma3(), "bfloat16"),
    "gemma3-head-128-fp16": (
        lambda: gemma3(head_dim=128, num_attention_heads=8, sliding_window=16, query_pre_attn_scalar=128),
        "float16",
    ),
    "gemma3-one-head-8-queries": (
        lambda: gemma3(num_attention_heads=8, num_key_value_heads=1, vocab_size=1008, intermediate_size=768),
        "bfloat16",
    ),
    "qwen3-moe": (lambda: qwen3_moe(), "bfloat16"),
    "qwen3-moe-held": (
        lambda: qwen3_moe(
            hidden_size=512, num_attention_heads=4, moe_intermediate_size=192, initializer_range=0.056
        ),
        "bfloat16",
    ),
    "qwen3-moe-mixed-fp16": (
        lambda: qwen3_moe(
            norm_topk_prob=False, mlp_only_layers=[1], num_experts=16, tie_word_embeddings=True
        ),
        "float16",
    ),
}


@pytest.fixture(scope="module", params=list(MODELS))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    save_model(request.param, path)
    return path


def save_model(name: str, directory: Path) -> None:
    make, dtype = MODELS[name]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(make(), dtype=getattr(torch, dtype))
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("norm.weight"):  # not all ones, so that a missing or swapped norm shows
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif name.startswith("gpt-oss") and parameter_name.endswith(("bias", "sinks")):
            torch.nn.init.normal_(parameter, 0, 0.5)
        elif name.startswith("gpt-oss") and parameter_name.endswith("down_proj"):
            parameter.data.mul_(0.25)  # or another expert would change nearly everything
    sharpen_routers(model)
    model.save_pretrained(directory)


@pytest.fixture(scope="module")
def reference(directory: Path) -> Reference:
    return reference_of(directory)


def reference_of(directory: Path) -> Reference:
    config = transformers.AutoConfig.from_pretrained(directory)
    # fp16 changes so few routers' choices that its own error says nothing of a changed one.
    return Reference(directory, torch.bfloat16 if hasattr(config, "num_experts_per_tok") else config.dtype)


@pytest.fixture
def rig(directory: Path) -> Iterator[NativeRig]:
    device = Device()
    rig = open_rig(device, directory, make_limits())
    yield rig
    rig.close()
    device.close()


def prompt(length: int, seed: int = 0, vocab: int = VOCAB) -> list[int]:
    return np.random.default_rng((length, seed)).integers(0, vocab, length).tolist()


def test_a_whole_prompt(rig: NativeRig, reference: Reference) -> None:
    for row, length in enumerate((1, 2, 15, 16, 17, 63, 64, 65, 130, 256)):
        rig.driver.start(row, prompt(length))
        rig.prefill([(row, 0, length)])
    reference.check(rig)


@pytest.mark.parametrize("chunk", [1, 7, 16, 100])
def test_a_prompt_in_chunks(rig: NativeRig, reference: Reference, chunk: int) -> None:
    length = 37 if chunk == 1 else 300
    rig.driver.start(3, prompt(length))
    for first in range(0, length, chunk):
        rig.prefill([(3, first, min(first + chunk, length))])
    reference.check(rig)


def test_packed_prompts(rig: NativeRig, reference: Reference) -> None:
    """Chunks of several rows in one step, some of which do not end their prompts."""
    lengths = {2: 70, 5: 1, 0: 33, 9: 64, 1: 20}
    for row, length in lengths.items():
        rig.driver.start(row, prompt(length))
    rig.prefill([(2, 0, 40), (5, 0, 1), (0, 0, 33), (9, 0, 64), (1, 0, 19)])
    rig.prefill([(1, 19, 20), (2, 40, 70)])
    reference.check(rig)


def test_decode_after_prefill_in_every_batch_size(rig: NativeRig, reference: Reference) -> None:
    """Rows of different lengths decode together, join and leave; order of rows and of batch slots differ."""
    rows = [17, 4, 0, 23, 8, 11, 1, 2, 3, 5, 6, 7, 9, 10, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22]
    for row in rows:
        length = 1 + row * 9
        rig.driver.start(row, prompt(length))
        rig.prefill([(row, 0, length)])
    for n in (24, 24, 17, 16, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 24):
        rig.decode(rows[:n])
    reference.check(rig)


def test_a_long_row_decodes_over_many_pages(rig: NativeRig, reference: Reference) -> None:
    rig.driver.start(7, prompt(490))
    rig.prefill([(7, 0, 256)])
    rig.prefill([(7, 256, 490)])
    rig.driver.start(8, prompt(3))
    rig.prefill([(8, 0, 3)])
    for _ in range(20):
        rig.decode([8, 7])
    reference.check(rig)


def test_prompts_and_rows_that_decode_share_steps(rig: NativeRig, reference: Reference) -> None:
    """Few rows and many, chunks that begin, go on and end prompts, in mixed shapes of four sizes."""
    rows = [17, 4, 0, 23, 8, 11, 1, 2, 3, 5, 6, 7, 9, 10, 12, 13]
    for row in rows:
        rig.driver.start(row, prompt(3 + row * 11))
        rig.prefill([(row, 0, 3 + row * 11)])
    rig.driver.start(20, prompt(300))
    rig.driver.start(21, prompt(180))
    rig.driver.start(22, prompt(256))
    rig.mixed(rows, [(20, 0, 40)])
    rig.mixed(rows[:3], [(20, 40, 130)])
    rig.decode(rows[:3])
    rig.mixed(rows[:1], [(20, 130, 300), (21, 0, 1)])
    rig.mixed([*rows, 20], [(21, 1, 180), (22, 0, 83)])
    rig.mixed([21, 20], [(22, 83, 256)])
    rig.decode([22, 20, *rows, 21])
    reference.check(rig)


def test_pages_come_back_from_host_memory(rig: NativeRig, reference: Reference) -> None:
    """E25: keys and values of all layers, to other pages than they left."""
    rig.driver.start(0, prompt(300, 40))
    rig.prefill([(0, 0, 256)])
    rig.driver.travel(0)
    rig.prefill([(0, 256, 300)])
    rig.driver.travel(0)
    for _ in range(4):
        rig.decode([0])
    reference.check(rig)


def test_results_do_not_depend_on_stale_rows(rig: NativeRig) -> None:
    """The same row gives the same logits whatever ran before in the padding of its shape."""
    seen = []
    for filler in (None, 200):
        if filler:
            rig.driver.start(0, prompt(filler, seed=1))
            rig.prefill([(0, 0, filler)])
        rig.driver.start(1, prompt(50))
        rig.prefill([(1, 0, 50)])
        seen.append(rig.seen[-1])
    assert np.array_equal(seen[0][2], seen[1][2])
    assert seen[0][3] == seen[1][3]


def test_the_demo_model() -> None:
    """On what it was trained for: long rows, and prompts that end where the answer begins."""
    device = Device()
    rig = open_rig(device, DEMO, make_limits())
    config = transformers.AutoConfig.from_pretrained(DEMO)
    tokenizer, rng = Tokenizer.from_file(str(DEMO / "tokenizer.json")), random.Random(3)
    for row, task in enumerate(("add", "lookup", "count")):
        ids = tokenizer.encode(sample(task, rng, split="heldout").prompt).ids
        rig.driver.start(row, ids)
        rig.prefill([(row, 0, len(ids))])
    for _ in range(10):
        rig.decode([2, 0, 1])
    Reference(DEMO, config.dtype).check(rig)
    rig.close()
    device.close()


@pytest.mark.parametrize("name", ["llama-decoder", "qwen3"])
def test_a_head_of_its_own_beside_a_tied_embedding(name: str, tmp_path: Path) -> None:
    """In the decode megakernel and outside of it, for one row and for many. transformers decides as we do."""
    config, dtype = MODELS[name][0](), getattr(torch, MODELS[name][1])
    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(tmp_path)
    published = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**published, "tie_word_embeddings": True}))
    device = Device()
    rig = open_rig(device, tmp_path, make_limits())
    for row in range(9):
        rig.driver.start(row, prompt(20 + row))
        rig.prefill([(row, 0, 20 + row)])
    for n in (1, 2, 9):
        rig.decode(range(n))
    Reference(tmp_path, dtype).check(rig)
    rig.close()
    device.close()
