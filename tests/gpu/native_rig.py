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
from gpu_backend.engines.base import Limits
from gpu_backend.engines.native.engine import NativeEngine
from gpu_backend.engines.native.lowering import OWN_KERNELS, Lowering
from gpu_backend.models.description import Model
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.layout import as_stored


def make_limits(**changes: int) -> Limits:
    sizes = {
        "max_batch": 24,
        "max_context": 512,
        "max_prefill_tokens": 256,
        "max_prefill_slots": 8,
        "page_size": 16,
        "total_pages": 24 * 32,
        "host_pages": 80,
        "copied_pages": 40,
    }
    return Limits(**{**sizes, **changes})


class NativeRig:
    """Steps an engine and keeps the logits of every batch slot that sampled, for `check`."""

    def __init__(
        self, device: Device, config: Model, source: Any, limits: Limits, lowering: Lowering = OWN_KERNELS
    ) -> None:
        self.memory = DeviceMemory(device)
        self.driver = EngineDriver(self.memory, limits, config.vocab_size)
        grid = self.driver.grid
        of = (device, config, source, limits, grid.shapes, self.driver.batch)
        self.engine = NativeEngine(*of, lowering=lowering)
        self.driver.run = self.engine.run
        self.seen: list[tuple[int, int, NDArray[np.float32], int]] = []  # row, position, logits, token

    def prefill(self, chunks: Sequence[Chunk]) -> None:
        self._record([row for row, _, _ in chunks], self.driver.prefill(chunks))

    def decode(self, rows: Sequence[int]) -> None:
        self._record(rows, self.driver.decode(rows))

    def mixed(self, rows: Sequence[int], chunks: Sequence[Chunk]) -> None:
        self._record([*rows, *(row for row, _, _ in chunks)], self.driver.mixed(rows, chunks))

    def verify(self, drafts: Sequence[tuple[int, Sequence[int]]]) -> int:
        """How many drafts were right."""
        known = {row: len(self.driver.tokens[row]) for row, _ in drafts}
        sampled = self.driver.verify(drafts)
        logits, n_right = iter(self.engine.logits(sum(map(len, sampled)))), 0
        for (row, _), tokens in zip(drafts, sampled, strict=True):
            found = len(self.driver.tokens[row]) - known[row]
            n_right += found - 1
            for i, token in enumerate(tokens):
                of_token = next(logits)
                if i < found:  # those behind follow a wrong draft
                    self.seen.append((row, known[row] - 1 + i, of_token.copy(), token))
        return n_right

    def _record(self, rows: Sequence[int], tokens: Sequence[int | None]) -> None:
        logits = self.engine.logits(len(rows))
        for row, batch_slot, token in zip(rows, logits, tokens, strict=True):
            if token is not None:
                self.seen.append((row, len(self.driver.tokens[row]) - 2, batch_slot.copy(), token))

    def close(self) -> None:
        self.engine.close()
        self.memory.close()


def open_rig(device: Device, directory: Path, limits: Limits) -> NativeRig:
    checkpoint = Checkpoint(directory)
    return NativeRig(device, as_stored(read_model(directory), checkpoint), checkpoint, limits)


class Reference:
    """transformers on the GPU: fp32 arithmetic on the checkpoint's weights, and the checkpoint's own type."""

    def __init__(self, directory: Path, dtype: torch.dtype) -> None:
        self.exact = load_model(directory, torch.float32)
        self.rounded = load_model(directory, dtype)

    def check(self, rig: NativeRig) -> None:
        """The logits are as close to fp32 as twice transformers' own half-precision error allows.

        An error is the largest of a position, relative to the row's largest logit. The median position may be
        off by twice the reference's median, and the worst by twice its worst: in a mixture of experts
        rounding makes a router choose another expert here and there, so only the median is sharp. The greedy
        token is the reference's wherever its top-2 margin exceeds twice the worst error allowed.
        """
        assert rig.seen
        tokens_of = {row: rig.driver.tokens[row] for row in sorted({row for row, *_ in rig.seen})}
        exact_of = {row: logits_of(self.exact, tokens) for row, tokens in tokens_of.items()}
        scale_of = {row: np.abs(exact).max() for row, exact in exact_of.items()}
        own = np.concatenate(
            [
                np.abs(logits_of(self.rounded, tokens) - exact_of[row]).max(axis=1) / scale_of[row]
                for row, tokens in tokens_of.items()
            ]
        )
        usual, worst = 1e-3 + 2 * np.median(own), 1e-3 + 2 * own.max()
        assert usual < 0.15, f"a usual error of {usual} says nothing"
        assert worst < 0.5, f"a worst error of {worst} says nothing"
        errors = []
        for row, position, logits, token in rig.seen:
            exact, scale = exact_of[row][position], scale_of[row]
            assert np.isfinite(logits).all()
            errors.append(np.abs(logits - exact).max() / scale)
            assert errors[-1] <= worst, f"row {row} position {position}: {errors[-1]} > {worst}"
            second, first = np.sort(exact)[-2:]
            if first - second > 2 * worst * scale:
                assert token == exact.argmax()
        assert np.median(errors) <= usual, f"usually {np.median(errors)} > {usual}"


def sharpen_routers(model: torch.nn.Module) -> None:
    """Makes the last of a token's experts weigh little: a choice that rounding changes changes little."""
    for name, parameter in model.named_parameters():
        if name.endswith(("mlp.gate.weight", "mlp.router.weight")):
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
