"""What `blink backend` says of itself once it serves."""

from __future__ import annotations

from gpu_backend.engines.base import Limits
from gpu_backend.models.description import Model
from gpu_backend.options import BackendOptions
from ringbuffer.region import Geometry

NO_END = (
    "warning: neither config.json, generation_config.json nor the tokenizer's eos_token names a token of the "
    "vocabulary that ends an answer: every answer goes on until max_tokens or a stop string"
)


def banner(
    options: BackendOptions, config: Model, limits: Limits, geometry: Geometry, device_name: str
) -> str:
    """The sizes, and where they are not what the model has or what was asked for."""
    context, slots = f"{limits.max_context:,} tokens", geometry.n_slots
    longest = config.max_context
    if options.max_context is None and limits.max_context < longest:
        context = f"{limits.max_context:,} of the model's {longest:,}: --kv-memory"
    narrow = [f"weights in {form.words}" for form in config.scale_forms]
    narrow += ["an fp8 KV cache"] if limits.kv_fp8 else []
    stored = f" with {' and '.join(narrow)}" if narrow else ""
    asked = "" if slots == options.slots else f" (--slots {options.slots:,}, rounded up)"
    return (
        f"serving {options.model_dir.resolve().name} on {device_name}{stored}: batch {limits.max_batch}, "
        f"{slots:,} slots{asked}, {limits.total_pages:,} pages of {limits.page_size}, "
        f"ring {options.ring}, context {context}"
    )
