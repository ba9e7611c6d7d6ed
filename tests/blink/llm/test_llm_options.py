"""The keywords of an LLM are the flags of `blink backend`, by each of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from blink.errors import CommandError
from blink.llm.options import chosen


def flags(**given: Any) -> list[str]:
    """Those that the backend of the demo model is started with, behind its ring."""
    _, process = chosen("demo", None, None, 60.0, given)
    assert process is not None
    process.claim.release()
    return process.command[6:]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"max_model_len": 512}, ["--max-context=512"]),
        ({"max_context": 512, "device": "cpu"}, ["--max-context=512", "--device=cpu"]),
        ({"kv_memory": "64MiB"}, ["--kv-memory=67108864B"]),
        ({"enable_prefix_caching": False}, ["--no-prefix-cache"]),
        ({"enable_prefix_caching": True, "quantization": None}, []),
        ({"no_prefix_cache": True}, ["--no-prefix-cache"]),
        ({"batch_invariant": True}, ["--batch-invariant"]),
        ({"batch_invariant": False}, []),
        ({"tensor_parallel_size": 1, "dtype": "auto", "seed": None, "enforce_eager": False}, []),
        ({"task": "generate", "runner": "generate", "skip_tokenizer_init": False}, []),
        ({"dtype": "bfloat16", "enforce_eager": True, "trust_remote_code": True}, []),
        ({"dtype": torch.bfloat16}, []),
        ({"task": "auto", "runner": "auto", "convert": "auto"}, []),
    ],
)
def test_keywords_are_flags(given: dict[str, Any], expected: list[str]) -> None:
    assert sorted(flags(**given)) == sorted(expected)


def test_a_dictionary_is_written_as_json() -> None:
    (flag,) = flags(speculative_config={"method": "ngram", "num_speculative_tokens": 3})
    assert flag.startswith("--speculative-config=")
    assert '"ngram"' in flag


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"tensor_parallel_size": 2}, TypeError, "'tensor_parallel_size': one model runs on one GPU"),
        ({"dtype": "half"}, ValueError, "dtype='half': this model is computed in bfloat16"),
        ({"dtype": 16}, ValueError, "dtype=16: this model is computed in bfloat16"),
        ({"task": "embed"}, TypeError, "'task': models are served to generate text alone"),
        ({"max_contxt": 2}, TypeError, "'max_contxt'; did you mean max_context"),
        ({"max_context": "many"}, ValueError, "max_context='many': 'many' is not a whole number"),
        ({"device": "tpu"}, ValueError, "device='tpu': it must be one of auto, gpu, cpu"),
        ({"batch_invariant": 1}, ValueError, "batch_invariant must be True or False"),
        ({"chat_template": "/no/such/file"}, ValueError, "there is no file /no/such/file"),
    ],
)
def test_wrong_keywords_are_told(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        chosen("demo", None, None, 60.0, given)


def test_a_running_backend_has_its_options_already(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_model_len: give this to the backend that runs"):
        chosen("demo", "some-ring", None, 60.0, {"max_model_len": 512})
    with pytest.raises(CommandError, match="no directory"):
        chosen(tmp_path / "nothing", "some-ring", None, 60.0, {})
