"""Training: AdamW on fp32 masters with bf16 products, bounded by the clock."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from demo_model.corpus import WEIGHT_SCALE, Bucket
from demo_model.model import Llama

WARM_UP = 0.02  # share of the budget
REPORT_SECONDS = 5.0


@dataclass(frozen=True)
class Recipe:
    """What a training run is told."""

    minutes: float
    step_tokens: int  # tokens, padding included, in one optimizer step
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    seed: int = 0


@dataclass
class DeviceBucket:
    """A bucket on the device, with the order of this epoch and the place in it. rows: drawn per step."""

    ids: Tensor
    weights: Tensor
    rows: int
    order: Tensor | None = None
    at: int = 0


class Pool:
    """The corpus on the device; every step draws rows from all buckets in proportion, without replacement."""

    def __init__(self, buckets: list[Bucket], step_tokens: int, device: torch.device, seed: int) -> None:
        self.generator = torch.Generator(device=device).manual_seed(seed)
        total = sum(bucket.ids.size for bucket in buckets)
        self.buckets = [
            DeviceBucket(
                torch.from_numpy(bucket.ids.astype(np.int16)).to(device),
                torch.from_numpy(bucket.weights).to(device),
                max(1, round(len(bucket.ids) * step_tokens / total)),
            )
            for bucket in buckets
            if len(bucket.ids)
        ]

    def draw(self) -> list[tuple[Tensor, Tensor]]:
        """One step: per bucket, ids int64 and weights fp32, both [rows, width + 1]."""
        batches = []
        for bucket in self.buckets:
            if bucket.order is None or bucket.at + bucket.rows > len(bucket.ids):
                device = bucket.ids.device
                bucket.order = torch.randperm(len(bucket.ids), generator=self.generator, device=device)
                bucket.at = 0
            picked = bucket.order[bucket.at : bucket.at + bucket.rows]
            bucket.at += bucket.rows
            batches.append((bucket.ids[picked].long(), bucket.weights[picked].float() / WEIGHT_SCALE))
        return batches


def learning_rate(progress: float, peak: float) -> float:
    """Linear warm-up, then a cosine to zero; `progress` is the elapsed share of the budget."""
    if progress < WARM_UP:
        return peak * progress / WARM_UP
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - WARM_UP) / (1 - WARM_UP))))


def make_optimizer(model: Llama, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=model.cos.is_cuda)


def weighted_loss(model: Llama, forward: Callable[[Tensor], Tensor], ids: Tensor, weights: Tensor) -> Tensor:
    """Weighted sum of the cross entropies of the next tokens."""
    logits = model.logits(forward(ids[:, :-1])).flatten(0, 1)
    losses = F.cross_entropy(logits, ids[:, 1:].flatten(), reduction="none")
    return (losses * weights[:, 1:].flatten()).sum()


def make_forward(model: Llama, pool: Pool, compiled: bool) -> Callable[[Tensor], Tensor]:
    """The model itself, or its compiled form, warmed up on every bucket's shape before the clock starts."""
    if not compiled:
        return model
    forward: Callable[[Tensor], Tensor] = torch.compile(model, dynamic=False)
    try:
        for ids, weights in pool.draw():
            weighted_loss(model, forward, ids, weights).backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # a missing compiler must not cost the run
        print(f"train: torch.compile failed ({error}); training without it", file=sys.stderr, flush=True)
        forward = model
    model.zero_grad(set_to_none=True)
    return forward


def train(model: Llama, buckets: list[Bucket], recipe: Recipe, compiled: bool) -> dict[str, float]:
    """Train in place until the clock ends; returns what happened (steps, tokens, seconds, final loss)."""
    device = model.cos.device
    pool = Pool(buckets, recipe.step_tokens, device, recipe.seed)
    optimizer = make_optimizer(model, recipe)
    forward = make_forward(model, pool, compiled)
    budget, started, reported = recipe.minutes * 60, time.monotonic(), 0.0
    step, tokens, average = 0, 0, torch.zeros((), device=device)
    while (elapsed := time.monotonic() - started) < budget:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(elapsed / budget, recipe.learning_rate)
        batches = pool.draw()
        loss = backward(model, forward, batches)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average = loss if step == 0 else 0.95 * average + 0.05 * loss
        step += 1
        tokens += sum(ids.numel() for ids, _ in batches)
        if step % 8 == 0 and device.type == "cuda":
            torch.cuda.synchronize()  # the clock must not run ahead of the device
        if elapsed - reported > REPORT_SECONDS:
            reported = elapsed
            rate = tokens / elapsed / 1e6
            line = f"{elapsed:6.1f} s  step {step:6d}  loss {average.item():.4f}  {rate:.3f} M tokens/s"
            print(f"train: {line}", file=sys.stderr, flush=True)
    return {
        "steps": step,
        "tokens": tokens,
        "seconds": time.monotonic() - started,
        "final_loss": average.item(),
    }


def backward(
    model: Llama, forward: Callable[[Tensor], Tensor], batches: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """Accumulate the gradients of one step's mean loss over all buckets; returns that loss."""
    total_weight = torch.stack([weights[:, 1:].sum() for _, weights in batches]).sum()
    step_loss = torch.zeros((), device=total_weight.device)
    for ids, weights in batches:
        loss = weighted_loss(model, forward, ids, weights) / total_weight
        loss.backward()  # type: ignore[no-untyped-call]
        step_loss += loss.detach()
    return step_loss
