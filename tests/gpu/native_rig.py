"""A CUDA engine with its driver, and the comparison of everything it computed with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine_driver import Chunk, EngineDriver
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from gpu_backend.cuda.driver import Device
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engine.base import Limits
from gpu_backend.engine.native import NativeEngine
from gpu_backend.model.checkpoint import Checkpoint
from gpu_backend.model.config import ModelConfig


def make_limits(**changes: int) -> Limits:
    sizes = {
        "max_batch": 24,
        "max_context": 512,
        "max_prefill_tokens": 256,
        "max_prefill_lanes": 8,
        "page_size": 16,
        "total_pages": 24 * 32,
    }
    return Limits(**{**sizes, **changes})


class NativeRig:
    """Steps an engine and keeps the logits of every lane that sampled, for `check`."""

    def __init__(self, device: Device, config: ModelConfig, source: Any, limits: Limits) -> None:
        self.memory = DeviceMemory(device)
        self.driver = EngineDriver(self.memory, limits, config.vocab_size)
        grid = self.driver.grid
        self.engine = NativeEngine(device, config, source, limits, grid.shapes, self.driver.batch)
        self.driver.run = self.engine.run
        self.seen: list[tuple[int, int, NDArray[np.float32], int]] = []  # row, position, logits, token

    def prefill(self, chunks: Sequence[Chunk]) -> None:
        self._record([row for row, _, _ in chunks], self.driver.prefill(chunks))

    def decode(self, rows: Sequence[int]) -> None:
        self._record(rows, self.driver.decode(rows))

    def _record(self, rows: Sequence[int], tokens: Sequence[int | None]) -> None:
        logits = self.engine.logits(len(rows))
        for row, lane, token in zip(rows, logits, tokens, strict=True):
            if token is not None:
                self.seen.append((row, len(self.driver.tokens[row]) - 2, lane.copy(), token))

    def close(self) -> None:
        self.engine.close()
        self.memory.close()


def open_rig(device: Device, directory: Path, limits: Limits) -> NativeRig:
    config = ModelConfig.from_directory(directory)
    return NativeRig(device, config, Checkpoint(directory), limits)


class Reference:
    """transformers on the GPU: fp32 arithmetic on the checkpoint's weights, and the checkpoint's own type."""

    def __init__(self, directory: Path, dtype: torch.dtype) -> None:
        self.exact = load_model(directory, torch.float32)
        self.rounded = load_model(directory, dtype)

    def check(self, rig: NativeRig) -> None:
        """Every recorded logit is as close to fp32 as twice transformers' own half-precision error allows.

        Relative to the largest logit of the row; the error is the worst of all rows, as a router may choose
        another expert in any of them. The greedy token is the reference's wherever its top-2 margin exceeds
        twice the tolerance.
        """
        assert rig.seen
        tokens_of = {row: rig.driver.tokens[row] for row in sorted({row for row, *_ in rig.seen})}
        exact_of = {row: logits_of(self.exact, tokens) for row, tokens in tokens_of.items()}
        allowed = 1e-3 + 2 * max(
            np.abs(logits_of(self.rounded, tokens) - exact_of[row]).max() / np.abs(exact_of[row]).max()
            for row, tokens in tokens_of.items()
        )
        assert allowed < 0.15, f"a relative tolerance of {allowed} says nothing"
        for row, exact in exact_of.items():
            scale = np.abs(exact).max()
            tolerance = allowed * scale
            for _, position, logits, token in (seen for seen in rig.seen if seen[0] == row):
                assert np.isfinite(logits).all()
                error = np.abs(logits - exact[position]).max()
                assert error <= tolerance, f"row {row} position {position}: {error} > {tolerance} of {scale}"
                second, first = np.sort(exact[position])[-2:]
                if first - second > 2 * tolerance:
                    assert token == exact[position].argmax()


def sharpen_routers(model: torch.nn.Module) -> None:
    """Makes the last of a token's experts weigh little: a choice that rounding changes changes little."""
    for name, parameter in model.named_parameters():
        if name.endswith("mlp.gate.weight"):
            parameter.data.mul_(2)


def load_model(directory: Path, dtype: torch.dtype) -> Any:
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, **eager)
    return model.to("cuda").eval()


@torch.no_grad()
def logits_of(model: Any, tokens: Sequence[int]) -> NDArray[np.float32]:
    """[len(tokens)][vocab]"""
    out = model(torch.tensor([tokens], device="cuda")).logits[0]
    return out.float().cpu().numpy()  # type: ignore[no-any-return]
