"""How many pages a KV cache gets, and what that leaves of the context."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_backend.engines.base import Limits
from gpu_backend.engines.kv_pages import COPIED_PAGES, COPY_BYTES, with_host_pages, with_pages

WANTED = Limits(
    max_batch=2, max_context=64, max_prefill_tokens=32, max_prefill_slots=2, page_size=16, total_pages=0
)


def test_a_cache_is_no_larger_than_its_batch_can_use() -> None:
    assert with_pages(WANTED, 1000, asked=False) == replace(WANTED, total_pages=8)


def test_the_prefix_cache_has_what_was_asked_for_beyond_that() -> None:
    assert with_pages(WANTED, 1000, asked=True) == replace(WANTED, total_pages=1000)
    without = replace(WANTED, prefix_cache=False)
    assert with_pages(without, 1000, asked=True) == replace(without, total_pages=8)


def test_a_context_that_does_not_fit_is_cut_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert with_pages(WANTED, 3, asked=True) == replace(WANTED, total_pages=3, max_context=48)
    assert "the context is cut from 64 to that" in capsys.readouterr().err


def test_a_cache_of_one_page_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for two pages: raise --kv-memory"):
        with_pages(WANTED, 1, asked=False)


def test_host_memory_holds_whole_pages() -> None:
    limits = with_host_pages(WANTED, 1000, 5999)
    assert limits == replace(WANTED, host_pages=5, copied_pages=COPIED_PAGES)
    assert with_host_pages(WANTED, 1000, None) == WANTED


@pytest.mark.parametrize(("page_bytes", "pages"), [(2 << 20, 48), (COPY_BYTES, 1), (2 * COPY_BYTES, 1)])
def test_a_copy_step_is_short(page_bytes: int, pages: int) -> None:
    """S19: whatever decodes waits for it."""
    assert with_host_pages(WANTED, page_bytes, 64 << 30).copied_pages == pages


def test_host_memory_for_no_page_is_refused() -> None:
    with pytest.raises(ValueError, match="holds no KV page of 1000: raise --host-kv-memory"):
        with_host_pages(WANTED, 1000, 999)
