"""Whether a model's output layer is its embedding: config.json says, and the checkpoint may know better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpu_backend.models.description import Model
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

COMPARED_AT_ONCE = 1 << 20  # bytes, which stay in a core's cache


def with_own_head(
    model: Model, checkpoint: Checkpoint, notice: Callable[[str], None] = lambda text: None
) -> Model:
    """The model with the output layer that its checkpoint has, as transformers 5 loads it.

    Where config.json ties it to the embedding, a tensor of its own is used if it differs, of which `notice`
    tells; and where the embedding is missing, that tensor is both. Where the two are not tied, there has to
    be one. Raises CheckpointError.
    """
    named = [head for head in model.own_heads if checkpoint.has(head)]
    if model.head is not None:
        if not named:
            raise CheckpointError(
                f"{checkpoint.directory}: the checkpoint has no tensor '{model.head.tensors[0]}', and "
                "config.json does not say that the output layer is the embedding: if it is, set "
                "tie_word_embeddings to true there"
            )
        return replace(model, head=named[0])
    own = next((head for head in named if checkpoint.holds(head.tensors[0])), None)
    if own is None:
        return model
    [name], [embedding] = own.tensors, model.embed.tensors
    if not checkpoint.holds(embedding):
        return replace(model, embed=own)
    if _alike(checkpoint, name, embedding):
        return model
    notice(f"'{name}' is used, as it differs from the embedding, to which config.json ties the output layer")
    return replace(model, head=own)


def _alike(checkpoint: Checkpoint, name: str, other: str) -> bool:
    """Whether two tensors are the same, bit for bit. Neither stays in this process's memory."""
    if checkpoint.dtype(name) != checkpoint.dtype(other):
        return False
    one, another = checkpoint.tensor(name), checkpoint.tensor(other)
    if one.shape != another.shape:
        return False
    ours, theirs = one.reshape(-1).view(np.uint8), another.reshape(-1).view(np.uint8)
    try:
        return all(
            np.array_equal(ours[at : at + COMPARED_AT_ONCE], theirs[at : at + COMPARED_AT_ONCE])
            for at in range(0, ours.size, COMPARED_AT_ONCE)
        )
    finally:
        checkpoint.release(name)
        checkpoint.release(other)
