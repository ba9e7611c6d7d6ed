"""A mixture of experts as a sequence of launches.

    one token:    (sums for the router, by o), experts' gate_up (norm, choice, silu * mul), down and sum;
                  where that does not suit, the same as few
    few tokens:   router (norm and logits), experts' gate_up (choice, silu * mul), experts' down, sum + norm
    many tokens:  norm, router GEMM, choice, plan, experts' gate_up and silu * mul, experts' down, sum + norm

Of more than 8 tokens the router chooses. The sum's norm is the next layer's, unless that has it in a product;
the last layer has the sum alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.held import held_products
from gpu_backend.cuda.product import HALF_BYTES, Product
from gpu_backend.cuda.stream import STREAM_BLOCKS, STREAM_THREADS
from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.native_held import NO_ROUTER, router_part
from gpu_backend.engine.native_weights import DeviceLayer
from gpu_backend.engine.sizing import ROUTER_TOKENS, SUM_PLACES, TILE_UNIT, streams_experts
from gpu_backend.engines.base import Shape
from gpu_backend.models.description import Model

# Launch constants of the headers in kernels/ops, by the names they have there.
ROUTER_EXPERTS = 16
ROUTER_THREADS = 256
ROUTER_CHUNK = 32
ROUTE_WARPS = 4
PLAN_THREADS = 1024
PLAN_TOKENS = 512
EXPERT_THREADS = 256
EXPERT_BLOCKS = 2
FEW_TOKENS = 8
ONE_EXPERTS = 8  # of a token at most, if its kernels are those of expert_one.h
ONE_SLICE = 64  # of down's k: a chunk for each of its halves
ONE_HIDDEN = 16384  # at most: gate_up holds the normed token in the shared memory that every kernel may have
TILE_THREADS = 384
TILE_SHARED_BYTES = 217152
TILE_WEIGHTS = 256
TILE_K = 64
NORM_THREADS = 256

Launch = Callable[..., None]  # op, grid, block, arguments; shared_bytes
Linear = Callable[[Product], int]


class NativeMixture:
    """Enqueues the mixtures of one model's layers. Owns nothing but its addresses."""

    def __init__(self, config: Model, activations: Activations, n_multiprocessors: int) -> None:
        self._config = config
        self._activations = activations
        # One is the scheduler's: a block that had to wait for another's end would double the time.
        self._n_multiprocessors = n_multiprocessors - 1
        self._has_held_o = "held_o" in held_products(config)

    def enqueue(
        self,
        launch: Launch,
        linear: Linear,
        shape: Shape,
        step_set: bytes,
        layer: DeviceLayer,
        next_norm: int,
    ) -> None:
        """residual += the weighted sum of the experts that the router chooses for each token's norm.

        `next_norm`: weight of the norm that comes next, which is put into normed; 0 for none here.
        """
        config, act, experts, tokens = self._config, self._activations, self._config.experts, shape.tokens
        assert experts is not None
        hidden, per_token, eps = config.hidden, experts.per_token, config.norm_eps
        grid, block = (tokens, 1, 1), (NORM_THREADS, 1, 1)
        if self._is_one(tokens):
            self._one(launch, step_set, layer)
            if next_norm:
                launch("rmsnorm", grid, block, act.residual, next_norm, eps, act.normed, hidden)
            return
        few = streams_experts(experts, tokens)
        if few and hidden % ROUTER_CHUNK == 0:
            self._route(launch, shape, step_set, layer)
        else:
            self._route_many(launch, linear, shape, step_set, layer)
        if few:
            self._stream(launch, tokens, step_set, layer)
        else:
            self._tile(launch, tokens, layer)
        total = (act.expert_rows, act.expert_choice, act.expert_weight, act.residual)
        if next_norm:
            norm = (next_norm, eps, act.normed)
            launch("expert_sum_rmsnorm", grid, block, *total, *norm, hidden, per_token)
        else:
            launch("expert_sum", grid, block, *total, hidden, per_token)

    def router_part(self, layer: DeviceLayer, tokens: int) -> bytes:
        """For the product that completes the residual in front of the layer's experts."""
        experts = self._config.experts
        if experts is None or not layer.router or not self._is_one(tokens):
            return NO_ROUTER
        return router_part(layer.mlp_norm, layer.router, self._activations.router_sums, experts.count)

    def _is_one(self, tokens: int) -> bool:
        """Whether the kernels for one token suit, and the product in front of them."""
        experts = self._config.experts
        assert experts is not None
        fits = experts.intermediate % ONE_SLICE == 0 and experts.per_token <= ONE_EXPERTS
        return tokens == 1 and fits and self._config.hidden <= ONE_HIDDEN and self._has_held_o

    def _one(self, launch: Launch, step_set: bytes, layer: DeviceLayer) -> None:
        """residual += the weighted sum of a token's experts."""
        config, act, experts = self._config, self._activations, self._config.experts
        assert experts is not None
        hidden, inter, per_token = config.hidden, experts.intermediate, experts.per_token
        grid, block = (STREAM_BLOCKS * self._n_multiprocessors, 1, 1), (STREAM_THREADS, 1, 1)
        chosen, sums = (act.expert_choice, act.expert_weight), act.router_sums
        routing = step_set + struct.pack("<3Q", sums, *chosen)
        routing += struct.pack("<2I", experts.count, int(experts.renormalise))
        norm = (act.residual, layer.mlp_norm, config.norm_eps)
        gate_up = (layer.gate_up, act.expert_product, hidden, inter, per_token)
        shared_bytes = HALF_BYTES * hidden
        launch("expert_gate_up_one", grid, block, routing, *norm, *gate_up, shared_bytes=shared_bytes)
        down = (layer.down, act.expert_product, act.residual, inter, hidden, per_token)
        launch("expert_down_one", grid, block, *chosen, sums, SUM_PLACES * experts.count, *down)

    def _route(self, launch: Launch, shape: Shape, step_set: bytes, layer: DeviceLayer) -> None:
        config, act, experts, tokens = self._config, self._activations, self._config.experts, shape.tokens
        assert experts is not None
        grid = (ceil_div(experts.count, ROUTER_EXPERTS), ceil_div(tokens, ROUTER_TOKENS), 1)
        norm = (act.residual, layer.mlp_norm, config.norm_eps)
        outputs = (act.normed, act.router_logits, act.expert_choice, act.expert_weight)
        counts = (tokens, config.hidden, experts.count, experts.per_token, int(experts.renormalise))
        arguments = (step_set, *norm, layer.router, *outputs, act.router_arrivals, *counts)
        launch("router", grid, (ROUTER_THREADS, 1, 1), *arguments)

    def _route_many(
        self, launch: Launch, linear: Linear, shape: Shape, step_set: bytes, layer: DeviceLayer
    ) -> None:
        config, act, experts, tokens = self._config, self._activations, self._config.experts, shape.tokens
        assert experts is not None
        norm = (act.residual, layer.mlp_norm, config.norm_eps, act.normed, config.hidden)
        launch("rmsnorm", (tokens, 1, 1), (NORM_THREADS, 1, 1), *norm)
        sizes = (tokens, config.hidden, experts.count)
        linear(Product(layer.router, act.normed, act.router_logits, *sizes, "float"))
        grid, counts = (ceil_div(tokens, ROUTE_WARPS), 1, 1), (tokens, experts.count, experts.per_token)
        chosen = (act.expert_choice, act.expert_weight)
        route = (step_set, act.router_logits, *chosen, *counts, int(experts.renormalise))
        launch("route", grid, (32 * ROUTE_WARPS, 1, 1), *route)

    def _stream(self, launch: Launch, tokens: int, step_set: bytes, layer: DeviceLayer) -> None:
        act, hidden, experts = self._activations, self._config.hidden, self._config.experts
        assert experts is not None
        grid, block = (EXPERT_BLOCKS * self._n_multiprocessors, 1, 1), (EXPERT_THREADS, 1, 1)
        inter, per_token = experts.intermediate, experts.per_token
        chosen = (act.expert_choice, act.expert_weight)
        routing = step_set + struct.pack("<3Q", act.router_logits, *chosen)
        routing += struct.pack("<2I", experts.count, int(experts.renormalise))
        gate_up = (layer.gate_up, act.normed, act.expert_product, tokens, hidden, inter, per_token)
        chooser = "_few" if tokens <= FEW_TOKENS else ""
        launch(f"expert_stream_gate_up{chooser}", grid, block, routing, *gate_up)
        down = (layer.down, act.expert_product, act.expert_rows)
        launch("expert_stream_down", grid, block, routing, *down, tokens, inter, hidden, per_token)

    def _tile(self, launch: Launch, tokens: int, layer: DeviceLayer) -> None:
        config, act, experts = self._config, self._activations, self._config.experts
        assert experts is not None
        plan, hidden, inter = (act.expert_plan, act.expert_pairs), config.hidden, experts.intermediate
        grid, counts = (ceil_div(tokens, PLAN_TOKENS), 1, 1), (tokens, experts.count, experts.per_token)
        launch("expert_plan", grid, (PLAN_THREADS, 1, 1), act.expert_choice, *plan, *counts, TILE_UNIT)

        grid, block = (self._n_multiprocessors, 1, 1), (TILE_THREADS, 1, 1)
        shape = (2 * experts.count, inter, hidden)
        gate_up = tensor_map(layer.gate_up, shape, (2, TILE_WEIGHTS // 2, TILE_K), swizzle=True)
        shape = (experts.count, hidden, inter)
        down = tensor_map(layer.down, shape, (1, TILE_WEIGHTS, TILE_K), swizzle=True)
        first = (gate_up, act.normed, act.expert_product, hidden, inter, experts.per_token)
        launch("expert_tiled_gate_up", grid, block, *plan, *first, shared_bytes=TILE_SHARED_BYTES)
        second = (down, act.expert_product, act.expert_rows, inter, hidden, experts.per_token)
        launch("expert_tiled_down", grid, block, *plan, *second, shared_bytes=TILE_SHARED_BYTES)
