"""How many pages a KV cache gets, and what that leaves of the context."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.engines.base import Limits
from gpu_backend.messages import say


def with_pages(wanted: Limits, pages: int) -> Limits:
    """`wanted` with a KV cache of at most `pages`: what the batch can use, and a context that fits.

    Raises ValueError where there is no room for two pages.
    """
    limits = fitted(wanted, pages)
    if limits.max_context < wanted.max_context:
        cut = f"the context is cut from {wanted.max_context} to that"
        say(f"the KV cache holds {limits.max_context} tokens: {cut}")
    return limits


def fitted(wanted: Limits, pages: int) -> Limits:
    """The same without a word."""
    pages = min(pages, wanted.max_batch * wanted.pages_per_sequence)
    if pages < 2:
        raise ValueError("the KV cache has no room for two pages: raise --kv-memory")
    context = min(wanted.max_context, pages * wanted.page_size)
    return replace(wanted, total_pages=pages, max_context=context)
