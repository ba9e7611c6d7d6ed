"""How much GPU memory a model takes, and how many KV pages fit beside it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_backend.abi import StepKind
from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.kernels import decode_group, decoder_blocks, suits_decoder, suits_flash
from gpu_backend.cuda.product import HALF_BYTES
from gpu_backend.cuda.tiled import TILED_SILU_ROWS
from gpu_backend.cuda.wide import wide_sum_bytes
from gpu_backend.engine.exchange import exchange_bytes
from gpu_backend.engines.base import MIXED_SHARE, MIXED_TOKENS, Limits, Shape
from gpu_backend.engines.graph_grid import FINEST_STEP
from gpu_backend.models.description import Experts, Model

MIN_SPLIT = 64  # kMinSplit of kernels/ops/decode_unit.h
BLOCKS_PER_MULTIPROCESSOR = 4  # what attention in the decoder kernel aims to fill the GPU with
UNIT_HEADS = 8  # kUnitHeads of kernels/ops/attention_unit.h: query heads of a unit of decode attention
MOST_PARTS = 64  # kMostParts of kernels/ops/attention_parts.h: into which a row is cut
LEAST_KEYS = 128  # of a piece of a row
LONGEST_KEYS = 1024  # of a piece where there are other rows, which would have to wait
MIXED_PIECES = 2  # of a row in a mixed step, at least
PIECE_RECORD = 32  # AttentionPiece of kernels/ops/attention_plan.h
TILE_UNIT = 160  # kTileUnit of kernels/ops/experts_tiled.h: pairs of a unit of expert work
STREAM_PAIRS = 8  # pairs an expert, on average, up to which reading the weights is all the work
UNIT_BYTES = 16  # ExpertUnit of kernels/ops/expert_plan.h, PrefillUnit of kernels/ops/prefill_plan.h
FLASH_ROWS = 128  # kFlashRows of kernels/ops/attention_flash.h
MAX_PACK = 8  # heads of a token in one tile of it
STREAM_TOKENS = 128  # kStreamTokens of kernels/ops/stream_plan.h, whose kStreamPairs are STREAM_PAIRS * 256
ROUTER_TOKENS = 8  # kRouterTokens of kernels/ops/router.h: of a block
SUM_PLACES = 4  # kSumPlaces of kernels/ops/router_part.h
READ_BYTES_S, HALF_FLOPS = 4.5e12, 780e12  # what an H200 reads, and multiplies of half type, in a second
LAYER_S = 60e-6  # of a layer of a prefill step, however few its tokens: its kernels' starts and ends
SMALLEST_CONTEXT = 512  # tokens of KV cache without which a model is not worth loading
RESERVE_BYTES = 1 << 30  # graphs (up to 2 MB each), modules, the GEMM library, its workspace and its clock


def bytes_per_page(config: Model, page_size: int) -> int:
    """Keys and values of `page_size` tokens, all layers."""
    return 2 * HALF_BYTES * config.n_layers * config.n_kv_heads * page_size * config.head_dim


def layer_cache_bytes(config: Model, limits: Limits) -> int:
    """The keys of one layer, or its values, which come right after them."""
    return limits.total_pages * bytes_per_page(config, limits.page_size) // (2 * config.n_layers)


def decode_splits(config: Model, lanes: int, max_context: int, n_multiprocessors: int) -> int:
    """Blocks among which decode attention splits a row's keys: enough to fill the GPU with `lanes` rows."""
    ratio = config.n_heads // config.n_kv_heads
    blocks = lanes * config.n_kv_heads * ceil_div(ratio, decode_group(config.n_heads, config.n_kv_heads))
    wanted = ceil_div(BLOCKS_PER_MULTIPROCESSOR * n_multiprocessors, blocks)
    return max(1, min(wanted, MOST_PARTS, ceil_div(max_context, MIN_SPLIT)))


@dataclass(frozen=True)
class AttentionCut:
    """How decode attention cuts rows into pieces (AttentionCut of kernels/ops/attention_plan.h)."""

    usual: int
    least: int
    longest: int
    most: int

    @property
    def words(self) -> bytes:
        """The structure by value."""
        return struct.pack("<4I", self.usual, self.least, self.longest, self.most)


def decoding_lanes(shape: Shape, max_batch: int) -> int:
    """Rows that decode in a step of `shape`, at most."""
    if shape.kind == StepKind.PREFILL:
        return 0
    return shape.lanes if shape.kind == StepKind.DECODE else min(shape.lanes, max_batch)


def attention_cut(
    config: Model, lanes: int, n_multiprocessors: int, kind: StepKind = StepKind.DECODE
) -> AttentionCut:
    """For a shape of `lanes`: pieces enough to give every block one, short enough that blocks end together,
    and few enough that combining them takes no time. In a mixed shape fewer than `lanes` may decode."""
    blocks = n_multiprocessors - 1  # one is the scheduler's
    units = lanes * config.n_kv_heads * ceil_div(config.n_heads // config.n_kv_heads, UNIT_HEADS)
    longest = LONGEST_KEYS if lanes > 1 else 1 << 31
    most = min(MOST_PARTS, max(4, ceil_div(MOST_PARTS * blocks, units)))
    usual = max(MIXED_PIECES if kind == StepKind.MIXED else 1, blocks // units)
    return AttentionCut(usual, LEAST_KEYS, longest, most)


def mixed_share(config: Model) -> int:
    """Prompt tokens that a mixed step should have: beside rows that decode, as many as a layer multiplies
    while its weights are read, or while its kernels start and end.

    More take longer; fewer save little, and have a prompt take more steps.
    """
    layers = config.layers
    layer = next((layer for layer in layers if layer.router), layers[0])
    attention = layer.qkv.n_elements + layer.o.n_elements
    mlp = layer.gate_up.n_elements + layer.down.n_elements
    used = mlp if config.experts is None else mlp * config.experts.per_token / config.experts.count
    layer_s = max(HALF_BYTES * (attention + mlp) / READ_BYTES_S, LAYER_S)
    tokens = layer_s * HALF_FLOPS / (2 * (attention + used))
    return min(MIXED_TOKENS, max(MIXED_SHARE, FINEST_STEP * int(tokens / FINEST_STEP)))


def has_tail(config: Model, shape: Shape) -> bool:
    """Whether what lies behind the last layer's attention is for the lanes' last tokens alone."""
    return shape.kind != StepKind.DECODE and not config.has_experts(config.n_layers - 1)


def ends_in_lanes(config: Model, shape: Shape) -> bool:
    """Whether behind the last layer there is a row for each lane: rows that decode are in the lanes' order
    (kernels/scheduler/planner.h)."""
    return shape.kind == StepKind.DECODE or has_tail(config, shape)


def flash_pack(config: Model) -> int:
    """Query heads of a token, all of one KV head, that are rows of one tile: a power of two."""
    ratio = config.n_heads // config.n_kv_heads
    return min(MAX_PACK, ratio & -ratio)


def activation_bytes(config: Model, shapes: Sequence[Shape], n_multiprocessors: int) -> dict[str, int]:
    """Bytes of each buffer of native_step.Activations, for the largest shape."""
    tokens = max(shape.tokens for shape in shapes)
    lanes = max(shape.lanes for shape in shapes)
    max_batch = max(shape.lanes for shape in shapes if shape.kind == StepKind.DECODE)
    decode = {n for shape in shapes if (n := decoding_lanes(shape, max_batch))}
    pieces = max(n * attention_cut(config, n, n_multiprocessors).most for n in decode)
    dense_tokens = tokens if config.any_dense else 0
    rows = [n for shape in shapes for n in (shape.tokens, shape.lanes)]  # of MLPs
    separate = max((n for n in rows if n < TILED_SILU_ROWS), default=0)
    sizes = {
        "residual": 4 * tokens * config.hidden,
        "normed": HALF_BYTES * tokens * config.hidden,
        "qkv": HALF_BYTES * tokens * config.qkv_width,
        "attention": HALF_BYTES * tokens * config.attention_width,
        "gate_up": HALF_BYTES * min(dense_tokens, separate) * 2 * config.intermediate,
        "product": HALF_BYTES * dense_tokens * config.intermediate,
        "logits": 4 * lanes * config.vocab_size,
        "attention_plan": PIECE_RECORD * (1 + max(pieces, n_multiprocessors)),
        "turns": 8 * max(decode) * (config.head_dim // 2),
        "partial": 4 * pieces * config.n_heads * (config.head_dim + 4),
        "sums": wide_sum_bytes(config, n_multiprocessors),
    }
    if suits_decoder(config, n_multiprocessors):
        blocks = decoder_blocks(config, n_multiprocessors)
        sizes |= {"exchange": exchange_bytes(config, blocks), "leavers": 4}
    if config.has_experts(config.n_layers - 1):
        sizes["gathered"] = HALF_BYTES * lanes * config.hidden
    else:
        sizes["last_residual"] = 4 * lanes * config.hidden
        sizes["last_attention"] = HALF_BYTES * lanes * config.attention_width
    if suits_flash(config):
        sizes["prefill_plan"] = UNIT_BYTES * (1 + tokens * flash_pack(config) // FLASH_ROWS + lanes)
    if config.experts is not None:
        sizes |= _expert_bytes(config.experts, config.hidden, tokens)
    return sizes


def streams_experts(experts: Experts, tokens: int) -> bool:
    """Whether a step of `tokens` takes the kernels for few pairs an expert (kernels/ops/experts.h)."""
    return tokens <= STREAM_TOKENS and tokens * experts.per_token <= STREAM_PAIRS * experts.count


def _expert_bytes(experts: Experts, hidden: int, most: int) -> dict[str, int]:
    pairs = most * experts.per_token
    return {
        "router_logits": 4 * most * experts.count,
        "expert_choice": 4 * pairs,
        "expert_weight": 4 * pairs,
        "expert_plan": UNIT_BYTES * (1 + pairs // TILE_UNIT + min(experts.count, pairs)),
        "expert_pairs": 4 * pairs,
        "expert_product": HALF_BYTES * pairs * experts.intermediate,
        "expert_rows": HALF_BYTES * pairs * hidden,
        "router_sums": 8 * SUM_PLACES * experts.count,
        "router_arrivals": 4 * ceil_div(STREAM_TOKENS, ROUTER_TOKENS),
    }


def weight_bytes(config: Model) -> int:
    """All weights in the engine's half type."""
    return HALF_BYTES * config.n_elements


@dataclass(frozen=True)
class Needs:
    """Bytes of GPU memory that serving a model takes."""

    weights: int
    kv_cache: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.activations + RESERVE_BYTES

    def check(self, room: int, free_bytes: int) -> None:
        """Raises ValueError, with the numbers, unless all of it fits into `room` of what is free."""
        if self.total > room:
            raise ValueError(
                f"the model does not fit: weights {self.weights / 1e9:.1f} GB + KV cache of at least "
                f"{self.kv_cache / 1e9:.1f} GB + activations {self.activations / 1e9:.1f} GB + graphs and "
                f"libraries {RESERVE_BYTES / 1e9:.1f} GB = {self.total / 1e9:.1f} GB, and of "
                f"{free_bytes / 1e9:.1f} GB of free GPU memory {room / 1e9:.1f} GB may be used"
            )


def needs(config: Model, shapes: Sequence[Shape], n_multiprocessors: int, kv_bytes: int) -> Needs:
    """What `config` takes with `kv_bytes` of KV cache."""
    sizes = activation_bytes(config, shapes, n_multiprocessors)
    return Needs(weight_bytes(config), kv_bytes, sum(sizes.values()))


def pages_that_fit(
    config: Model,
    page_size: int,
    shapes: Sequence[Shape],
    max_context: int,
    free_bytes: int,
    n_multiprocessors: int,
    fraction: float = 0.9,
) -> int:
    """KV pages that fit into `fraction` of `free_bytes` beside weights and activations.

    Raises ValueError if they do not hold SMALLEST_CONTEXT tokens, or the context where that is less.
    """
    page = bytes_per_page(config, page_size)
    smallest = page * ceil_div(min(max_context, SMALLEST_CONTEXT), page_size)
    room = int(fraction * free_bytes)
    least = needs(config, shapes, n_multiprocessors, smallest)
    least.check(room, free_bytes)
    return (room - least.total + smallest) // page
