"""Attention of prompts: with wgmma (kernels/ops/attention/flash_attention_sm90.h), or else plainly
(prefill_attention.h).

The first works off units that a plan makes of the step's prompts, once a step
(kernels/ops/attention/prefill_plan.h). In a shape of few tokens, whose units are fewer than there are blocks,
the keys of a unit may be divided into parts, which different blocks work on.
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.flash_accumulators_sm90 import FLASH_ATOM, FLASH_KEYS
from gpu_backend.kernel_abi.flash_attention_sm90 import FLASH_FP8_THREADS, FLASH_THREADS
from gpu_backend.kernel_abi.flash_parts_sm90 import FLASH_PART_WORDS, FLASH_WARPS
from gpu_backend.kernel_abi.flash_producer_sm90 import FLASH_RAW_STAGES, FLASH_ROWS, FLASH_STAGES
from gpu_backend.kernel_abi.prefill_attention import PREFILL_QUERIES, PREFILL_THREADS
from gpu_backend.kernel_abi.prefill_plan import PREFILL_PLAN_THREADS, PrefillUnit
from gpu_backend.ops.attention import Heads, LayerAttention, PrefillAttention, PrefillPlan
from gpu_backend.ops.elementwise import Always
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Launch, Tensor, instantiated
from gpu_backend.ops.matrix import Buffer, KvCache

FLASH_HEAD_DIMS = (64, 128)
MAX_PACK = 8  # heads of a token in one tile
GROUP_ROWS = 64  # of a warpgroup, whose queries one copy brings
ROW = 64  # elements of a row in shared memory
CELLS = 8  # rows of an atom: tokens of one head in the cache
UNIT_BYTES = PrefillUnit.itemsize
PART_KEYS = 2048  # of a unit, for which it has a part: what adds the parts up takes little time beside these


def flash_pack(heads: Heads) -> int:
    """Query heads of a token, all of one KV head, that are rows of one tile: a power of two."""
    return min(MAX_PACK, heads.ratio & -heads.ratio)


def flash_shared_bytes(head_dim: int, cached: Element) -> int:
    """FlashShared, and room to align it."""
    tiles = 2 * head_dim * (FLASH_ROWS + 2 * FLASH_STAGES * FLASH_KEYS)
    tiles += 2 * FLASH_RAW_STAGES * (FLASH_KEYS * head_dim if cached is Element.FP8 else 16)
    barriers = 8 * (2 + 4 * FLASH_STAGES + 2 * FLASH_RAW_STAGES)
    return FLASH_ATOM * ceil_div(tiles + barriers, FLASH_ATOM) + FLASH_ATOM


def _refusal(heads: Heads) -> str | None:
    if heads.dim in FLASH_HEAD_DIMS:
        return None
    return f"head_dim is {heads.dim}, it must be one of {', '.join(map(str, FLASH_HEAD_DIMS))}"


def _cache_boxes(cache: KvCache, atoms: int) -> Tensor:
    """Neighbouring atoms of the cache: of halves swizzled, of fp8 as they are, two elements a word."""
    dim = cache.head_dim
    if cache.element is Element.FP8:
        return Tensor(cache.address, (atoms, 1, CELLS, dim // 2), (2, 1, CELLS, dim // 2), swizzle=False)
    columns = dim // ROW
    shape, box = (atoms, columns, CELLS, ROW), (2, columns, CELLS, ROW)
    return Tensor(cache.address, shape, box, (CELLS * dim, ROW, dim))


def most_parts(heads: Heads, tokens: int, target: Target) -> int:
    """Parts that a unit of a step of `tokens` tokens has at most: so many that no more than the blocks there
    are have work if the tokens are of one prompt."""
    pack = flash_pack(heads)
    items = ceil_div(tokens * pack, FLASH_ROWS) * (heads.q // pack)
    return max(1, target.blocks // items)


def _plan(heads: Heads, tokens: int, batch_slots: int, parts: int) -> Buffer:
    units = tokens * flash_pack(heads) // FLASH_ROWS + batch_slots
    return Buffer("prefill_plan", 1 + units * parts, UNIT_BYTES, Element.U8)


def _parts(heads: Heads, tokens: int, most: int) -> tuple[Buffer | None, Buffer | None]:
    """`parts` and `arrivals` of kernels/ops/attention/flash_parts_sm90.h. The arrivals are 0 between kernels
    of all shapes, so that shapes may lay them out differently."""
    if most == 1:
        return None, None
    return (
        Buffer("prefill_parts", tokens * heads.q * most, heads.dim + FLASH_PART_WORDS, Element.FP32),
        Buffer("prefill_arrivals", tokens, heads.q // flash_pack(heads) * FLASH_WARPS, Element.U32),
    )


class PlanFlash:
    name = "prefill_plan"

    def suits(self, op: PrefillPlan, target: Target) -> str | None:
        return target.beyond_hopper or _refusal(op.heads)

    def launches(self, op: PrefillPlan, target: Target) -> list[Launch]:
        most = most_parts(op.heads, op.tokens, target)
        plan = _plan(op.heads, op.tokens, op.batch_slots, most)
        operands = (FromStep.STEP_SET, plan, FLASH_ROWS // flash_pack(op.heads), PART_KEYS, most)
        return [Launch("prefill_plan_kernel<>", (1, 1, 1), (PREFILL_PLAN_THREADS, 1, 1), operands)]


class FlashAttention:
    name = "flash_attention"

    def suits(self, op: PrefillAttention, target: Target) -> str | None:
        if target.beyond_hopper:
            return target.beyond_hopper
        if op.of.reach.window is not None:
            return f"a token sees {op.of.reach.window} keys, and it attends to all"
        return _refusal(op.of.heads)

    def launches(self, op: PrefillAttention, target: Target) -> list[Launch]:
        """All blocks at once."""
        of, heads, cache = op.of, op.of.heads, op.of.cache
        columns, pack, width = heads.dim // ROW, flash_pack(heads), heads.q + 2 * heads.kv
        rows, strides = (columns, of.qkv.rows, width, ROW), (ROW, width * heads.dim, heads.dim)
        queries = Tensor(of.qkv, rows, (columns, GROUP_ROWS // pack, pack, ROW), strides)
        fresh = Tensor(of.qkv, rows, (columns, CELLS, 1, ROW), strides)  # keys and values of this step
        atoms = cache.pages * cache.kv_heads * cache.page_size // CELLS  # of a layer's keys
        keys = _cache_boxes(cache, 2 * cache.layers * atoms)
        first = 2 * of.layer * atoms
        most = most_parts(heads, op.tokens, target)
        plan = _plan(heads, op.tokens, 0, most)  # PlanFlash knows how many batch slots it has
        inputs = (queries, fresh, keys, FromStep.TABLES, plan, of.out)
        counts = (first, first + atoms, heads.q, heads.kv, pack, int(op.after_decode))
        scales, half = (of.scales.key, of.scales.value), of.qkv.element.cpp
        choices = ((cache.element.cpp, half), (of.sinks is not None, False))
        return [
            Launch(
                instantiated("flash_attention_kernel", half, heads.dim, choices=choices),
                (target.blocks, 1, 1),
                (FLASH_FP8_THREADS if cache.element is Element.FP8 else FLASH_THREADS, 1, 1),
                (*inputs, *counts, *scales, *_parts(heads, op.tokens, most), most, of.sinks),
                shared_bytes=flash_shared_bytes(heads.dim, cache.element),
            )
        ]


class PlainAttention(Always):
    name = "prefill_attention"

    def launches(self, op: PrefillAttention, target: Target) -> list[Launch]:
        return [plain_launch(op.of, op.tokens, decodes=False)]


def plain_launch(of: LayerAttention, tokens: int, decodes: bool) -> Launch:
    """Of the first `tokens`: those of prompts, or of sequences that decode."""
    heads = of.heads
    caches = (of.cache.keys(of.layer), of.cache.values(of.layer))
    sizes = (heads.q, heads.kv, tokens, of.reach.window or 0, of.scales.key, of.scales.value, int(decodes))
    half = of.qkv.element.cpp
    choices = ((of.cache.element.cpp, half), (of.sinks is not None, False))
    return Launch(
        instantiated("prefill_attention_kernel", half, heads.dim, choices=choices),
        (ceil_div(tokens, PREFILL_QUERIES), heads.q, 1),
        (PREFILL_THREADS, 1, 1),
        (FromStep.STEP_SET, FromStep.TABLES, of.qkv, *caches, of.out, *sizes, of.sinks),
    )
