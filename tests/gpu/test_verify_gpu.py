"""Steps that verify drafts: attention gives the bits of decode steps, and an engine's logits are those of
transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_config import model_config
from native_rig import make_limits, open_rig
from test_attention_gpu import FP8, Rig
from test_native_logits import VOCAB, prompt, reference_of, save_model

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.driver import Device
from gpu_backend.engines.native.model import heads_of
from gpu_backend.ops.attention import KvScales
from gpu_backend.ops.decode_attention import sharing_rows

# Of sequences: the position of their first row, and their rows.
SEQUENCES = ((0, 15), (1, 1), (60, 8), (127, 2), (200, 15), (1023, 3), (5000, 12))


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize("scales", [None, FP8])
@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 128, "n_heads": 8, "n_kv_heads": 2, "qk_norm": True},
        {"head_dim": 64, "n_heads": 8, "n_kv_heads": 8, "dtype": "float16"},
        {"head_dim": 256, "n_heads": 8, "n_kv_heads": 1},
        {"head_dim": 64, "n_heads": 12, "n_kv_heads": 2},
        {"head_dim": 128, "n_heads": 8, "n_kv_heads": 1, "dtype": "float16"},
        {"head_dim": 128, "n_heads": 4, "n_kv_heads": 2},
    ],
    ids=["128 wide", "64", "256", "64 wide", "128 wide, two rows", "128"],
)
def test_rows_are_those_of_decode_steps_bit_by_bit(
    device: Device, changes: dict[str, Any], scales: KvScales | None, window: int | None
) -> None:
    """E16: outputs, keys and values. The decode steps come one after the other, with a row of each sequence,
    in a shape of as many batch slots as rows do not share: then the limits are the same."""
    positions = [first + i for first, n in SEQUENCES for i in range(n)]
    sequences = [sequence for sequence, (_, n) in enumerate(SEQUENCES) for _ in range(n)]
    rig = Rig(device, model_config(**changes), positions, window, scales, sequences)
    out, left = rig.step(range(len(positions)), rig.cache(), len(positions), verifies=True)
    batch_slots = ceil_div(len(positions), sharing_rows(heads_of(rig.config)))
    cache, firsts = rig.cache(), np.cumsum([0, *(n for _, n in SEQUENCES)])
    for k in range(max(n for _, n in SEQUENCES)):
        rows = [int(first) + k for first, (_, n) in zip(firsts, SEQUENCES, strict=False) if k < n]
        one, cache = rig.step(rows, cache, batch_slots)
        np.testing.assert_array_equal(one, out[rows])
    np.testing.assert_array_equal(cache, left)
    rig.close()


@pytest.mark.parametrize(
    "name", ["llama-decoder", "llama-mha-fp16", "qwen2-head-128-windows", "gemma3", "qwen3-moe"]
)
def test_logits_behind_drafts(device: Device, name: str, tmp_path: Path) -> None:
    """Of drafts that are right, as rows of the same prompts have found in decode steps, and of some that are
    not, in steps of 6 to 36 tokens."""
    save_model(name, tmp_path)
    rig = open_rig(device, tmp_path, make_limits(max_drafts=5))
    lengths = (1, 15, 16, 40, 130, 300)
    for row, length in enumerate((*lengths, *lengths)):
        rig.driver.start(row, prompt(length))
        for first in range(0, length, 256):
            rig.prefill([(row, first, min(first + 256, length))])
    for _ in range(24):
        rig.decode(range(len(lengths)))
    n_drafts = n_right = 0
    for step in range(6):
        drafts = []
        for row in range(len(lengths)):
            known = len(rig.driver.tokens[len(lengths) + row])
            guess = rig.driver.tokens[row][known : known + (row + step) % 6]
            if step % 2 and guess:
                guess[-1] = (guess[-1] + 1) % VOCAB
            drafts.append((len(lengths) + row, guess))
            n_drafts += len(guess)
        n_right += rig.verify(drafts)
    assert 0 < n_right < n_drafts
    reference_of(tmp_path).check(rig)
    rig.close()
