"""One step of the CUDA engine as a sequence of launches on a stream, which captures them into a graph.

    gate, where rows decode their attention's plan, embed,
    L x [norm, qkv, attention, o + add, norm, gate_up, silu * mul, down + add],
    norm, head, sample + publish

Where there are prompts, what lies behind the last layer's attention is for the lanes' last tokens alone,
which are gathered; behind experts they are gathered for the last norm.

Products of our own kernels (native_linear.py) include silu * mul. Between two wide products the norm is
part of both. A decode step of few rows of a dense model is [gate, decoder, sample + publish].

A layer of experts has a mixture (native_mixture.py) in place of the MLP and the norms around it.

A capture fixes capacities and addresses only (C6). GEMMs run at the shape's capacity: rows of padding tokens
hold zeros or finite values of earlier steps, and nothing reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.abi import StepKind
from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.cublas import Cublas
from gpu_backend.cuda.driver import Argument, Dim, Stream
from gpu_backend.cuda.kernels import Kernels, decoder_blocks, suits_flash
from gpu_backend.cuda.product import Product
from gpu_backend.cuda.tensor_map import TENSOR_MAP_BYTES
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.base import Limits, Shape
from gpu_backend.engine.decoder import decoder_buffers
from gpu_backend.engine.decoder_abi import DECODER_SHARED_BYTES, DECODER_TOKENS
from gpu_backend.engine.flash import FlashAttention
from gpu_backend.engine.gemm_choice import GemmChoice
from gpu_backend.engine.native_held import NO_ROUTER, NativeHeld
from gpu_backend.engine.native_linear import NativeLinear
from gpu_backend.engine.native_mixture import NativeMixture
from gpu_backend.engine.native_weights import DeviceLayer, DeviceWeights
from gpu_backend.engine.sampling import launch_sample
from gpu_backend.engine.sizing import (
    AttentionCut,
    attention_cut,
    decode_splits,
    decoding_lanes,
    ends_in_lanes,
    has_tail,
    layer_cache_bytes,
)
from gpu_backend.model.config import ModelConfig

# Launch constants of the headers in kernels/ops, by the names they have there.
ROPE_ELEMENTS = 16  # of a head, a thread
MAX_BLOCK = 1024
CUT_THREADS = 1024
ATTENTION_THREADS = 480
ATTENTION_SHARED_BYTES = 128 << 10
PREFILL_THREADS = 128
PREFILL_QUERIES = 64
DECODER_BLOCK = 384
VECTOR = 8  # elements of a 16-byte access
NO_BIAS = 0  # of the projection to queries, keys and values
NO_WINDOW = 0  # a token attends to all that come before it


def row_block(elements: int, most: int = MAX_BLOCK) -> Dim:
    """Whole warps, enough for one 16-byte access a thread."""
    return (min(most, 32 * ceil_div(elements, 32 * VECTOR)), 1, 1)


def rope_block(heads: int, head_dim: int) -> Dim:
    """Whole warps, enough for all heads of a token."""
    lanes = 1 << (head_dim // ROPE_ELEMENTS - 1).bit_length()
    return (min(MAX_BLOCK, 32 * ceil_div(max(heads * lanes, head_dim // 2), 32)), 1, 1)


@dataclass(frozen=True)
class Rows:
    """What the part of a layer behind attention works on, `count` rows each."""

    count: int
    residual: int
    attention: int


class NativeStep:
    """Enqueues the steps of one model. Owns nothing but its addresses."""

    def __init__(
        self,
        config: ModelConfig,
        limits: Limits,
        tables: bytes,
        kernels: Kernels,
        cublas: Cublas,
        choice: GemmChoice,
        stream: Stream,
        weights: DeviceWeights,
        activations: Activations,
        kv_cache: int,
        cache_maps: int,
        n_multiprocessors: int,
        decoder: bytes | None,
    ) -> None:
        """`cache_maps`: of each layer's cache, for decode attention. `decoder`: blink_decoder_model by value,
        for a model that suits the kernel."""
        self._config = config
        self._limits = limits
        self._tables = tables  # blink_tables by value
        self._kernels = kernels
        self._linear = NativeLinear(config, cublas, choice, activations, n_multiprocessors)
        self._stream = stream
        self._weights = weights
        self._activations = activations
        self._kv_cache = kv_cache
        self._cache_maps = cache_maps
        self._n_multiprocessors = n_multiprocessors
        self._decoder = decoder
        self._mixture = NativeMixture(config, activations, n_multiprocessors)
        self._held = NativeHeld(config, activations, n_multiprocessors)
        self._layer_bytes = layer_cache_bytes(config, limits)
        self._flash = None
        if suits_flash(config):
            self._flash = FlashAttention(config, limits, activations, kv_cache, n_multiprocessors)

    def enqueue(self, shape: Shape, step_set: bytes) -> None:
        """Puts the whole step on the stream. `step_set` is blink_step_set by value."""
        act = self._activations
        self._launch("gate", (1, 1, 1), (1, 1, 1), step_set, self._tables)
        few = shape.kind == StepKind.DECODE and shape.lanes <= DECODER_TOKENS
        if self._decoder is not None and few:
            self._decode(shape, step_set, self._decoder)
        else:
            self._layers(shape, step_set)
        launch_sample(
            self._kernels["sample"], self._stream, self._n_multiprocessors, shape.lanes,
            step_set, self._tables, act.logits,
        )  # fmt: skip

    def _decode(self, shape: Shape, step_set: bytes, decoder: bytes) -> None:
        """Logits of a decode step by one kernel, whose blocks are all resident at once."""
        splits = decode_splits(self._config, shape.lanes, self._limits.max_context, self._n_multiprocessors)
        blocks = decoder_blocks(self._config, self._n_multiprocessors)
        grid, block = (blocks, 1, 1), (DECODER_BLOCK, 1, 1)
        buffers = decoder_buffers(self._config, self._activations, splits, blocks)
        arguments = (step_set, self._tables, decoder, buffers)
        self._launch("decoder", grid, block, *arguments, shared_bytes=DECODER_SHARED_BYTES)

    def _layers(self, shape: Shape, step_set: bytes) -> None:
        """Logits of the lanes' last tokens, a kernel an operation."""
        config, weights, act = self._config, self._weights, self._activations
        if shape.kind != StepKind.PREFILL:
            self._plan_attention(shape, step_set)
        arguments = (step_set, self._tables, weights.embed, act.residual, config.hidden, 1.0)
        self._launch("embed", (shape.tokens, 1, 1), row_block(config.hidden), *arguments)
        if self._flash is not None and shape.kind != StepKind.DECODE:
            self._flash.plan(self._launch, step_set)
        rows, n_layers, n_sums = Rows(shape.tokens, act.residual, act.attention), config.n_layers, 0
        self._norm(rows, self._held.input_norm(weights.layers[:1], shape.tokens), 0)
        for index, layer in enumerate(weights.layers):
            following = self._held.input_norm(weights.layers[index + 1 : index + 2], shape.tokens)
            self._attend(shape, step_set, index, n_sums)
            if index + 1 == n_layers and has_tail(config, shape):
                rows = self._gather(shape, step_set)
            if index + 1 == n_layers and ends_in_lanes(config, shape):
                following = weights.final_norm
            n_sums = self._project(rows, layer)
            if layer.router:
                self._mixture.enqueue(self._launch, self._multiply, shape, step_set, layer, following)
                n_sums = 0
                continue
            self._norm(rows, layer.post_norm, n_sums)
            n_sums = self._mlp(rows, layer, n_sums, following)
            self._norm(rows, following, n_sums)
        self._head(shape, step_set, n_sums)

    def _head(self, shape: Shape, step_set: bytes, n_sums: int) -> None:
        """Logits of the lanes' last tokens, whose norm may have to be made."""
        config, weights, act = self._config, self._weights, self._activations
        x = act.normed
        if not ends_in_lanes(config, shape):
            x, norm = act.gathered, (weights.final_norm, config.norm_eps, act.gathered, config.hidden)
            grid, block = (shape.lanes, 1, 1), row_block(config.hidden)
            self._launch("gather_rmsnorm", grid, block, step_set, act.residual, *norm)
        sizes = (shape.lanes, config.hidden, config.vocab_size)
        self._multiply(Product(weights.head, x, act.logits, *sizes, "float"), n_sums)

    def _norm(self, rows: Rows, weight: int, n_sums: int) -> None:
        """normed = rmsnorm(residual), unless there is none or the product before has left its part of it."""
        if not weight or n_sums:
            return
        hidden, eps, act = self._config.hidden, self._config.norm_eps, self._activations
        arguments = (rows.residual, weight, eps, act.normed, hidden)
        self._launch("rmsnorm", (rows.count, 1, 1), row_block(hidden), *arguments)

    def _gather(self, shape: Shape, step_set: bytes) -> Rows:
        """The lanes' last tokens behind attention."""
        config, act = self._config, self._activations
        rows = Rows(shape.lanes, act.last_residual, act.last_attention)
        sizes = (config.hidden, config.attention_width)
        arguments = (step_set, act.residual, act.attention, rows.residual, rows.attention, *sizes)
        self._launch("gather_last", (shape.lanes, 1, 1), row_block(config.hidden), *arguments)
        return rows

    def _attend(self, shape: Shape, step_set: bytes, index: int, n_sums: int) -> None:
        """attention(rope(qkv(normed))), and this step's keys and values into the cache."""
        config, act, layer = self._config, self._activations, self._weights.layers[index]
        heads, kv_heads, tokens = config.n_heads, config.n_kv_heads, shape.tokens
        keys = self._kv_cache + 2 * index * self._layer_bytes
        values = keys + self._layer_bytes

        if not self._held.qkv(self._launch, layer, tokens):
            qkv = Product(layer.qkv, act.normed, act.qkv, tokens, config.hidden, config.qkv_width)
            self._multiply(qkv, n_sums)
        rope = (layer.q_norm, layer.k_norm, config.norm_eps)
        step = (step_set, self._tables, act.qkv)
        decodes, has_prompts = shape.kind != StepKind.PREFILL, shape.kind != StepKind.DECODE
        if has_prompts:  # first: their attention may then begin while rows that decode are at it (E24)
            grid, block = (tokens, 1, 1), rope_block(heads + 2 * kv_heads, config.head_dim)
            caches = (self._weights.rope, keys, values)
            self._launch("rope", grid, block, *step, *rope, *caches, heads, kv_heads, NO_BIAS)
        if decodes:
            self._attention_decode(shape, index, act.qkv, *rope, keys, values)
        if not has_prompts:
            return
        if self._flash is not None:
            self._flash.attend(self._launch, self._tables, index, after_decode=decodes)
        else:
            grid, block = (ceil_div(tokens, PREFILL_QUERIES), heads, 1), (PREFILL_THREADS, 1, 1)
            arguments = (keys, values, act.attention, heads, kv_heads, tokens, NO_WINDOW)
            self._launch("attention_prefill", grid, block, *step, *arguments)

    def _project(self, rows: Rows, layer: DeviceLayer) -> int:
        """residual += o(attention). Returns what it leaves."""
        config = self._config
        router = self._mixture.router_part(layer, rows.count)
        if self._held.o(self._launch, layer, rows.count, rows.attention, rows.residual, router):
            return 0
        assert router == NO_ROUTER, "nobody adds to the router's sums"
        sizes = (rows.count, config.attention_width, config.hidden)
        norm_after = 0 if layer.router else layer.post_norm
        return self._multiply(Product(layer.o, rows.attention, rows.residual, *sizes, "add"), 0, norm_after)

    def _plan_attention(self, shape: Shape, step_set: bytes) -> None:
        """What the attention of the rows that decode goes by, in all layers."""
        act, (lanes, cut) = self._activations, self._decoding(shape)
        outputs = (act.attention_plan, self._weights.rope, act.turns, self._config.head_dim, NO_WINDOW)
        blocks = 1 + ceil_div(lanes * (self._config.head_dim // 2), CUT_THREADS)
        grid, block = (blocks, 1, 1), (CUT_THREADS, 1, 1)
        self._launch("attention_plan", grid, block, step_set, cut.words, *outputs, shared_bytes=8 * lanes)

    def _attention_decode(self, shape: Shape, index: int, *inputs: Argument) -> None:
        """Attention of the rows that decode, with its RoPE and KV write."""
        config, act = self._config, self._activations
        _, cut = self._decoding(shape)
        grid, block = (self._n_multiprocessors - 1, 1, 1), (ATTENTION_THREADS, 1, 1)  # one is the scheduler's
        plan = (act.attention_plan, act.turns, self._cache_maps + TENSOR_MAP_BYTES * index)
        ratio = config.n_heads // config.n_kv_heads
        outputs = (act.partial, act.attention, config.n_kv_heads, ratio, cut.most, NO_BIAS, NO_WINDOW)
        arguments = (self._tables, *plan, *inputs, *outputs)
        self._launch("attention_stream", grid, block, *arguments, shared_bytes=ATTENTION_SHARED_BYTES)

    def _decoding(self, shape: Shape) -> tuple[int, AttentionCut]:
        """The lanes that rows that decode may have, and how their attention is cut up."""
        lanes = decoding_lanes(shape, self._limits.max_batch)
        return lanes, attention_cut(self._config, lanes, self._n_multiprocessors, shape.kind)

    def _mlp(self, rows: Rows, layer: DeviceLayer, n_sums: int, norm_after: int) -> int:
        """residual += down(silu(gate(normed)) * up(normed)). Returns what down leaves."""
        act, tokens = self._activations, rows.count
        hidden, intermediate = self._config.hidden, self._config.intermediate
        sizes = (tokens, hidden, intermediate)
        if self._linear.has_silu(*sizes):
            self._multiply(Product(layer.gate_up, act.normed, act.product, *sizes, "silu"), n_sums)
        else:
            block = row_block(intermediate, 256)
            grid = (tokens, ceil_div(intermediate, VECTOR * block[0]), 1)
            self._multiply(Product(layer.gate_up, act.normed, act.gate_up, tokens, hidden, 2 * intermediate))
            self._launch("silu_mul", grid, block, act.gate_up, act.product, intermediate)
        sizes = (tokens, intermediate, hidden)
        return self._multiply(Product(layer.down, act.product, rows.residual, *sizes, "add"), 0, norm_after)

    def _multiply(self, product: Product, n_sums: int = 0, norm_after: int = 0) -> int:
        return self._linear.enqueue(self._launch, product, n_sums, norm_after)

    def _launch(
        self, op: str, grid: Dim, block: Dim, *arguments: Argument, shared_bytes: int = 0, cluster: int = 0
    ) -> None:
        """The gate lets nothing of its step start before it opens (E2); all other kernels overlap (E7)."""
        overlap = op != "gate"
        self._kernels[op].launch(
            grid, block, self._stream, *arguments, shared_bytes=shared_bytes, overlap=overlap, cluster=cluster
        )
