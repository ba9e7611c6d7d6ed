"""The sampler's scores, run on the CPU by an emulator of CUDA's threads, against their CPU reference.

How they meet the rest of the sampler is tested in test_sampler_device.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from reference_ops import StepData

from gpu_backend import abi

Emulate = Callable[..., None]


CROWDED = {
    "ascending": np.arange(9001) / 9001,  # the first that are collected are the least
    "descending": -np.arange(9001) / 9001,
    "equal": np.zeros(9001),
    "two": np.where(np.arange(9001) % 9, 0.0, 1.0),
    "none": np.full(9001, -np.inf),
}


@pytest.mark.parametrize(("words", "blocks"), [(21, 1), (2, 2)])
@pytest.mark.parametrize("name", CROWDED)
def test_the_likeliest_where_many_are_alike(emulate: Emulate, name: str, words: int, blocks: int) -> None:
    """More tokens are collected than there is room for; of a prompt's tokens the rank is told."""
    arrays = StepData([(0, 15, 16), (1, 3, 4)], vocab_size=9001, max_context=48)
    arrays.params["prompt_tokens"], arrays.params["prompt_logprob_words"] = 16, words
    arrays.batch_emit[:] = abi.Emit.LOGPROBS
    arrays.history[1, 4] = 8999
    logits = np.tile(CROWDED[name], (2, 1)).astype(np.float32)
    arrays.call("sample", logits.copy())
    expected = arrays.out_logprobs.copy()
    arrays.out_logprobs[:] = 0
    emulate("sample", arrays.step_set, arrays.tables, logits, 2, blocks)
    np.testing.assert_array_equal(arrays.out_logprobs, expected)
    assert (arrays.completed[0], arrays.head["slots_done"][0]) == (arrays.head["id"][0], 0)
