"""What `blink backend` says of itself once it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_backend.model.config import ModelConfig

if TYPE_CHECKING:
    from gpu_backend.backend import Backend

DEFAULT_CONTEXT = 8192


def default_context(config: ModelConfig) -> int:
    return min(config.max_context, DEFAULT_CONTEXT)


def banner(backend: Backend) -> str:
    """The sizes, and where they are not what the model has or what was asked for."""
    options, limits = backend.options, backend.limits
    context, slots = f"{limits.max_context:,} tokens", backend.ring.geometry.n_slots
    longest = backend.config.max_context
    if options.max_context is None and limits.max_context == default_context(backend.config) < longest:
        context = f"{limits.max_context:,} of the model's {longest:,}: --max-context"
    asked = "" if slots == options.slots else f" (--slots {options.slots:,}, rounded up)"
    return (
        f"serving {options.model_dir.resolve().name} on {backend.plane.name}: batch {limits.max_batch}, "
        f"{slots:,} slots{asked}, {limits.total_pages:,} pages of {limits.page_size}, "
        f"ring {options.ring}, context {context}"
    )
