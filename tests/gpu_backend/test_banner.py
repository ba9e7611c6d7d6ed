"""The line with which a backend says what it serves, and where that is not what one might expect."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest

from blink.model_directory import demo_directory
from gpu_backend.backend import Backend
from gpu_backend.banner import banner
from gpu_backend.options import BackendOptions

KV_OF_4096 = 4096 * 2 * 4 * 6 * 2 * 64  # bytes: keys and values, fp32, layers, heads, head_dim


@pytest.fixture
def long_model(tmp_path: Path) -> Path:
    """The demo model, said to be trained for more than fits the memory that it is given."""
    shutil.copytree(demo_directory(), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 131072}))
    return tmp_path


def said(model: Path, **changes: object) -> str:
    options = {"ring": f"test-{uuid.uuid4().hex[:12]}", "device": "cpu", "slots": 64, **changes}
    backend = Backend(BackendOptions(model, **options))  # type: ignore[arg-type]
    backend.start()
    try:
        config, geometry = backend.config, backend.ring.geometry
        return banner(backend.options, config, backend.limits, geometry, backend.device.name)
    finally:
        backend.stop(0.0)


def test_slots_that_were_rounded_up_are_told() -> None:
    assert "32 slots (--slots 4, rounded up)" in said(demo_directory(), slots=4, leases=2)
    assert "64 slots," in said(demo_directory())


def test_weights_that_were_rounded_are_told() -> None:
    assert " on cpu: batch" in said(demo_directory())
    assert " on cpu with weights in fp8 (by row): batch" in said(demo_directory(), quantization="fp8")
    both = said(demo_directory(), quantization="fp8", kv_cache_dtype="fp8")
    assert " on cpu with weights in fp8 (by row) and an fp8 KV cache: batch" in both


def test_a_context_that_was_cut_by_default_is_told(long_model: Path) -> None:
    assert "context 131,072 tokens" in said(long_model, kv_memory=2 << 30)
    assert "context 4,096 of the model's 131,072: --kv-memory" in said(long_model, kv_memory=KV_OF_4096)
    assert said(long_model, max_context=4096).endswith("context 4,096 tokens")
    assert said(demo_directory()).endswith("context 2,048 tokens")
