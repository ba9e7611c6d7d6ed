"""Whether a model's keys are too large for a cache in fp8.

Qwen2 and Qwen2.5 add biases of up to some hundred to a few dimensions of their keys. An fp8 element (e4m3)
has three bits behind its first, so a key of that size is off by up to a sixteenth of it, at every position by
another amount since keys are rotated; above 448 it is clamped, too. Their answers are known to break.
"""

from __future__ import annotations

import numpy as np

from gpu_backend.models.description import Layer, Model
from gpu_backend.weights.checkpoint import Checkpoint

ROUNDED_BY = 1 / 16  # of a value, at most
LARGE = 16.0  # rounded by 1, which is what a query's dimension contributes to a score


def warn_of_key_biases(model: Model, checkpoint: Checkpoint) -> str | None:
    """A warning for a cache in fp8 where a layer adds large biases to its keys and the checkpoint has no
    scale for them, else None. `model` names the tensors as the checkpoint does."""
    biases = [(_largest(layer, model, checkpoint), i) for i, layer in enumerate(model.layers)]
    largest, index = max(biases, default=(0.0, 0))
    if largest <= LARGE:
        return None
    return (
        f"warning: keys of layer {index} have biases of up to {largest:.3g}, which a KV cache in fp8 rounds "
        f"by up to {largest * ROUNDED_BY:.2g}, and the checkpoint has no k_scale for them: answers of such "
        "models (Qwen2 and Qwen2.5 are known for it) break; --kv-cache-dtype bf16 keeps keys in the model's "
        "own type"
    )


def _largest(layer: Layer, model: Model, checkpoint: Checkpoint) -> float:
    """The largest bias of a key that no scale makes smaller."""
    if layer.qkv_bias is None or any(name in checkpoint for name in layer.k_scale):
        return 0.0
    first = model.n_heads * model.head_dim
    keys = checkpoint.stacked(layer.qkv_bias)[first : first + model.n_kv_heads * model.head_dim]
    return float(np.abs(keys).max())
