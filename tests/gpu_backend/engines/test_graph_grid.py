"""The grid always has a shape, it is the tightest one, and the tables agree with it."""

from dataclasses import replace

import pytest

from gpu_backend.abi import StepKind
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.graph_grid import (
    FEW_SLOTS,
    GraphGrid,
    decode_sizes,
    mixed_sizes,
    mixed_slots,
    prefill_sizes,
    verify_sizes,
)


def limits(max_batch: int = 64, max_prefill_tokens: int = 2048, max_prefill_slots: int = 16) -> Limits:
    return Limits(
        max_batch=max_batch,
        max_context=4096,
        max_prefill_tokens=max_prefill_tokens,
        max_prefill_slots=max_prefill_slots,
        page_size=16,
        total_pages=1024,
    )


def test_sizes_are_the_documented_ones() -> None:
    assert decode_sizes(64) == [1, 2, 4, 8, 16, 24, 32, 48, 64]
    upto_512 = [16, 32, 64, 128, 192, 256, 320, 384, 448, 512]
    assert prefill_sizes(1024) == [*upto_512, 576, 640, 704, 768, 832, 896, 960, 1024]
    assert prefill_sizes(2048)[-8:] == list(range(1152, 2049, 128))
    assert prefill_sizes(300) == [*upto_512[:6], 300]
    assert mixed_sizes(1024) == [64, 128, 160, 192, 256, 320, 384, 512, 640, 768, 896, 1024]
    assert mixed_sizes(200) == [64, 128, 160, 192, 200]
    assert mixed_sizes(18) == [18]
    assert mixed_slots(160, 136) == [64, 136]
    assert mixed_slots(64, 136) == mixed_slots(160, 64) == [64]
    assert verify_sizes(100) == [6, 8, 12, 16, 24, 32, 48, 64, 96, 100]
    assert verify_sizes(2) == [2]


@pytest.mark.parametrize("max_tokens", [2048, 5000, 8192, 65536])
def test_little_is_computed_for_nothing(max_tokens: int) -> None:
    grid = GraphGrid(limits(max_prefill_tokens=max_tokens))
    for tokens in range(513, max_tokens + 1):
        assert grid.shapes[grid.prefill_shape(tokens)].tokens <= 1.125 * tokens
    for tokens in range(129, 513):
        assert grid.shapes[grid.prefill_shape(tokens)].tokens < tokens + 64
    assert len(prefill_sizes(max_tokens)) <= 10 + 8 * (max_tokens // 512).bit_length()


@pytest.mark.parametrize("max_batch", [1, 2, 3, 7, 8, 16, 20, 24, 31, 32, 33, 40, 64, 100, 256])
def test_decode_lookup_is_the_tightest_fit(max_batch: int) -> None:
    grid = GraphGrid(limits(max_batch=max_batch))
    sizes = [s.tokens for s in grid.shapes if s.kind == StepKind.DECODE]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == max_batch
    assert len(grid.decode_lookup) == max_batch + 1
    for rows in range(max_batch + 1):
        shape = grid.shapes[grid.decode_shape(rows)]
        assert shape.kind == StepKind.DECODE
        assert shape.batch_slots == shape.tokens
        assert shape.tokens == min(s for s in sizes if s >= rows)


@pytest.mark.parametrize("max_tokens", [1, 8, 15, 16, 17, 32, 48, 100, 128, 1000, 2048, 8192])
@pytest.mark.parametrize("max_lanes", [1, 4, 16, 64])
def test_prefill_lookup_is_the_tightest_fit(max_tokens: int, max_lanes: int) -> None:
    grid = GraphGrid(limits(max_prefill_tokens=max_tokens, max_prefill_slots=max_lanes))
    sizes = [s.tokens for s in grid.shapes if s.kind == StepKind.PREFILL]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == max_tokens
    for tokens in range(1, max_tokens + 1):
        shape = grid.shapes[grid.prefill_shape(tokens)]
        assert shape.kind == StepKind.PREFILL
        # no smaller size would do for any count of the same lookup entry; batch slots never run out before
        # tokens
        entry = min(-(-tokens // 16) * 16, max_tokens)
        assert shape.tokens == min(s for s in sizes if s >= entry)
        assert shape.batch_slots >= min(tokens, max_lanes)


@pytest.mark.parametrize("max_batch", [1, 2, 31, 128, 1024, 3000])
@pytest.mark.parametrize("max_tokens", [1, 16, 64, 512, 8192])
def test_a_mixed_step_has_room_for_a_full_batch_and_a_prompt(max_batch: int, max_tokens: int) -> None:
    """S15: whatever decodes, a prompt gets its share of a step, or all that it may have."""
    sizes = limits(max_batch=max_batch, max_prefill_tokens=max_tokens)
    grid = GraphGrid(sizes)
    mixed = [(s.tokens, s.batch_slots) for s in grid.shapes if s.kind == StepKind.MIXED]
    assert mixed == sorted(set(mixed))
    tokens = [tokens for tokens, _ in mixed]
    assert tokens[-1] == sizes.max_mixed_tokens >= max_batch + min(sizes.mixed_share, max_tokens)
    for n in range(1, sizes.max_mixed_tokens + 1):
        entry = min(-(-n // 16) * 16, tokens[-1])
        most = min(n, max_batch + sizes.max_prefill_slots)
        for batch_slots in {1, min(FEW_SLOTS, most), min(FEW_SLOTS + 1, most), most}:
            shape = grid.shapes[grid.mixed_shape(n, batch_slots)]
            assert shape.kind == StepKind.MIXED
            assert shape.tokens == min(t for t in tokens if t >= entry)
            assert shape.batch_slots == min(m for t, m in mixed if t == shape.tokens and m >= batch_slots)
    assert sizes.max_step_tokens == max(s.tokens for s in grid.shapes)


def test_lookups_are_monotone_and_the_order_is_stable() -> None:
    grid = GraphGrid(limits(max_batch=200, max_prefill_tokens=5000))
    assert (grid.decode_lookup[1:] >= grid.decode_lookup[:-1]).all()
    assert (grid.prefill_lookup[1:] >= grid.prefill_lookup[:-1]).all()
    assert grid.shapes == GraphGrid(limits(max_batch=200, max_prefill_tokens=5000)).shapes
    kinds = [s.kind for s in grid.shapes]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize("max_drafts", [1, 3, 14])
@pytest.mark.parametrize("max_batch", [1, 3, 16, 64, 300])
def test_verify_lookup_is_the_tightest_fit(max_batch: int, max_drafts: int) -> None:
    sizes = replace(limits(max_batch=max_batch), max_drafts=max_drafts)
    plain, grid = GraphGrid(limits(max_batch=max_batch)), GraphGrid(sizes)
    tokens = verify_sizes(sizes.max_verify_rows)
    added = [Shape(StepKind.DECODE, n, n, verifies=True) for n in tokens]
    mixed = [replace(shape, verifies=shape.kind == StepKind.MIXED) for shape in plain.shapes]
    assert grid.shapes == (*mixed, *added)
    assert len(grid.verify_lookup) == sizes.max_verify_rows + 1
    for n in range(1, sizes.max_verify_rows + 1):
        shape = grid.shapes[grid.verify_shape(n)]
        assert (shape.verifies, shape.tokens) == (True, min(size for size in tokens if size >= n))
    for n in range(max_batch + 1):
        assert not grid.shapes[grid.decode_shape(n)].verifies
    assert sizes.max_step_tokens == max(shape.tokens for shape in grid.shapes)


def test_without_drafts_nothing_verifies() -> None:
    grid = GraphGrid(limits())
    assert not any(shape.verifies for shape in grid.shapes)
    assert len(grid.verify_lookup) == 1


@pytest.mark.parametrize("field", ["max_batch", "max_prefill_tokens", "max_prefill_slots"])
def test_zero_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        GraphGrid(limits(**{field: 0}))


def test_copies_have_a_shape_only_where_there_are_host_pages() -> None:
    plain = GraphGrid(limits())
    grid = GraphGrid(replace(limits(), host_pages=100, copied_pages=24))
    assert grid.shapes == (*plain.shapes, Shape(StepKind.COPY, 24, 0))
    assert grid.copy_shape == len(plain.shapes)
    assert (grid.mixed_lookup == plain.mixed_lookup).all()


@pytest.mark.parametrize("max_drafts", [0, 3])
@pytest.mark.parametrize("max_batch", [1, 24, 64, 100])
def test_invariant_steps_are_of_one_shape(max_batch: int, max_drafts: int) -> None:
    """Of up to 64 rows, with drafts and without; steps of more rows have no drafts."""
    sizes = replace(limits(max_batch=max_batch), max_drafts=max_drafts, batch_invariant=True)
    grid = GraphGrid(sizes)
    shape = grid.shapes[grid.decode_shape(1)]
    assert (shape.verifies, shape.tokens, shape.batch_slots) == (True, 64, 64)
    for n in range(1, min(max_batch, 64) + 1):
        assert grid.shapes[grid.decode_shape(n)] == shape
    assert sizes.max_verify_rows == (64 if max_drafts else 0)
    for n in range(1, sizes.max_verify_rows + 1):
        assert grid.shapes[grid.verify_shape(n)] == shape
    for n in range(65, max_batch + 1):
        assert grid.shapes[grid.decode_shape(n)].tokens >= n
        assert not grid.shapes[grid.decode_shape(n)].verifies
