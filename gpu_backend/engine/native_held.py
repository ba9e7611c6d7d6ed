"""Attention's products in steps of few rows, by the kernel that holds x in shared memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from gpu_backend.cuda.held import HELD_TOKENS, held_products
from gpu_backend.cuda.stream import STREAM_THREADS
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.native_weights import DeviceLayer
from gpu_backend.models.description import Model

Launch = Callable[..., None]  # op, grid, block, arguments; shared_bytes


def router_part(norm: int, router: int, sums: int, n_experts: int) -> bytes:
    """RouterPart of kernels/ops/router_part.h by value: addresses of weights, and of the sums."""
    return struct.pack("<3QI4x", norm, router, sums, n_experts)


NO_ROUTER = router_part(0, 0, 0, 0)


class NativeHeld:
    """Enqueues the products that suit the kernel. Owns nothing but addresses."""

    def __init__(self, config: Model, activations: Activations, n_multiprocessors: int) -> None:
        self._config = config
        self._activations = activations
        self._n_multiprocessors = n_multiprocessors
        self._products = held_products(config)

    def input_norm(self, layers: Sequence[DeviceLayer], tokens: int) -> int:
        """Weight of the norm in front of the first of `layers`; 0 if there is none, or qkv() has it."""
        return layers[0].input_norm if layers and not self._suits("held_qkv", tokens) else 0

    def qkv(self, launch: Launch, layer: DeviceLayer, tokens: int) -> bool:
        """qkv = rmsnorm(residual) times the weights, if the kernel suits. Returns whether it does."""
        act = self._activations
        inputs = (layer.qkv, act.residual, layer.input_norm, self._config.norm_eps)
        return self._multiply(launch, "held_qkv", tokens, *inputs, act.qkv)

    def o(
        self,
        launch: Launch,
        layer: DeviceLayer,
        tokens: int,
        attention: int,
        residual: int,
        router: bytes = NO_ROUTER,
    ) -> bool:
        """residual += attention times the weights, if the kernel suits. Returns whether it does.

        `router`: of one token, router_part of what follows.
        """
        return self._multiply(launch, "held_o", tokens, layer.o, attention, 0, 0.0, residual, router=router)

    def _suits(self, op: str, tokens: int) -> bool:
        return op in self._products and tokens <= HELD_TOKENS

    def _multiply(
        self, launch: Launch, op: str, tokens: int, *operands: int | float, router: bytes = NO_ROUTER
    ) -> bool:
        if not self._suits(op, tokens):
            return False
        product = self._products[op]
        grid, block = (product.blocks(self._n_multiprocessors), 1, 1), (STREAM_THREADS, 1, 1)
        shared_bytes = product.shared_bytes(tokens)
        launch(op, grid, block, *operands, tokens, product.n_out, router, shared_bytes=shared_bytes)
        return True
