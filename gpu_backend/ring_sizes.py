"""How large a backend makes its ring: slots, and the heaps of prompts and answers (ringbuffer/ring.h)."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.engines.base import Limits
from gpu_backend.options import BackendOptions
from ringbuffer.abi import COPY_ENGINE_BYTES, MAX_SLOTS, OUTPUT_GRANULE, PROMPT_GRANULE, SLOT_ALIGNMENT
from ringbuffer.region import MAX_HEAP, Geometry, rounded_up

# Tokens that a slot has of each heap, on average: of a usual prompt and answer, and in GPU memory of a padded
# copy (nic_frontend/README.md, U2).
USUAL_TOKENS = COPY_ENGINE_BYTES // 4
TOKEN_BYTES, RECORD_BYTES = 4, 8
# Bytes of both heaps beyond which they are made no larger without being asked for.
LARGEST_DEFAULT = 1 << 30


def rounded_slots(slots: int, leases: int) -> int:
    """At least `slots`, divided evenly among the leases in whole lines (R5)."""
    rounded = rounded_up(slots, leases * SLOT_ALIGNMENT)
    if not slots >= 1 or rounded > MAX_SLOTS:
        raise ValueError(f"slots is {slots} for {leases} lease(s), it must be between 1 and {MAX_SLOTS}")
    return rounded


def ring_geometry(options: BackendOptions, limits: Limits) -> Geometry:
    """The ring of such a backend.

    A request of the whole context fits each lease's heaps, whatever their size. Without `ring_memory`, each
    slot has USUAL_TOKENS of both on average, two prompts may have the whole context, and so may the answers
    of twice as many requests as run together, because one without a limit reserves what the context leaves.

    Raises ValueError when the slots or `ring_memory` cannot be.
    """
    leases = options.leases
    slots = rounded_slots(options.slots, leases)
    share = slots // leases
    context = rounded_up(limits.max_context, PROMPT_GRANULE)
    prompt = max(context, USUAL_TOKENS) if options.transport == "cuda_ipc" else context
    open_ended = max(2, ceil_div(2 * limits.max_batch, leases))
    usual = share * USUAL_TOKENS
    prompts = min(share * prompt, max(2 * prompt, usual), MAX_HEAP)
    outputs = min(share * context, max(open_ended * context, usual), MAX_HEAP)
    wanted = leases * (TOKEN_BYTES * prompts + RECORD_BYTES * outputs)
    memory = min(wanted, LARGEST_DEFAULT) if options.ring_memory is None else options.ring_memory

    least = leases * (TOKEN_BYTES * prompt + RECORD_BYTES * context)
    if options.ring_memory is not None and memory < least:
        raise ValueError(
            f"ring-memory is {memory} bytes, it must be at least {least}: each of {leases} frontend(s) needs "
            f"room for a request of {limits.max_context} tokens; or lower max-context"
        )
    part = max(0, memory - least) / max(1, wanted - least)  # of what is wanted beyond the least
    return Geometry(
        slots,
        leases,
        _between(prompt, prompts, share * prompt, part, PROMPT_GRANULE),
        _between(context, outputs, share * context, part, OUTPUT_GRANULE),
    )


def _between(least: int, wanted: int, most: int, part: float, granule: int) -> int:
    """That part of the way from the least to what is wanted, or beyond, in whole granules."""
    size = least + int(part * (wanted - least)) // granule * granule
    return min(size, most, MAX_HEAP)
