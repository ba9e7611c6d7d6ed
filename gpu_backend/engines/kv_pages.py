"""How many pages a KV cache gets, on the device and in host memory, and what that leaves of the context."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.engines.base import Limits
from gpu_backend.messages import say

COPY_BYTES = 96 << 20  # by one copy step, which whatever decodes waits for: 2 ms over a PCIe of 50 GB/s
COPIED_PAGES = 256  # by one copy step: as many as the scheduler has threads


def with_pages(wanted: Limits, pages: int, asked: bool) -> Limits:
    """`wanted` with a KV cache of at most `pages`, and a context that fits.

    It gets no more pages than the batch can use, unless so many were `asked` for: then the prefix cache has
    the rest. Raises ValueError where there is no room for two pages.
    """
    limits = fitted(wanted, pages, asked)
    if limits.max_context < wanted.max_context:
        cut = f"the context is cut from {wanted.max_context} to that"
        say(f"the KV cache holds {limits.max_context} tokens: {cut}")
    return limits


def fitted(wanted: Limits, pages: int, asked: bool) -> Limits:
    """The same without a word."""
    if not (asked and wanted.prefix_cache):
        pages = min(pages, wanted.max_batch * wanted.pages_per_sequence)
    if pages < 2:
        raise ValueError("the KV cache has no room for two pages: raise --kv-memory")
    context = min(wanted.max_context, pages * wanted.page_size)
    return replace(wanted, total_pages=pages, max_context=context)


def with_host_pages(limits: Limits, page_bytes: int, host_kv_memory: int | None) -> Limits:
    """`limits` with as many pages in host memory as `host_kv_memory` bytes hold, None for no such memory.

    Raises ValueError where they hold none.
    """
    if host_kv_memory is None:
        return limits
    pages = host_kv_memory // page_bytes
    if not pages:
        raise ValueError(
            f"host memory of {host_kv_memory} bytes holds no KV page of {page_bytes}: raise --host-kv-memory"
        )
    return replace(limits, host_pages=pages, copied_pages=max(1, min(COPY_BYTES // page_bytes, COPIED_PAGES)))
