"""The reference engine: the model on the CPU references of the kernels
(kernels/reference/reference_engine.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend import abi
from gpu_backend.engines.base import Batch, Limits, Shape
from gpu_backend.host_library import host_library
from gpu_backend.models import abi as model_abi
from gpu_backend.models.description import Model, Weight
from gpu_backend.models.rope import Rope
from gpu_backend.weights.checkpoint import Checkpoint

ALIGNMENT = 128
ERROR_BYTES = 256


class HostMemory:
    """base.Memory in this process: zeroed, 128-byte aligned. Addresses stay valid until close()."""

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.uint8]] = []

    def allocate(self, n_bytes: int) -> int:
        block = np.zeros(n_bytes + ALIGNMENT, np.uint8)
        self._blocks.append(block)
        return -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT

    def write(self, address: int, data: bytes | memoryview) -> None:
        ctypes.memmove(address, bytes(data), len(bytes(data)))

    def read(self, address: int, n_bytes: int) -> bytes:
        return ctypes.string_at(address, n_bytes)

    def close(self) -> None:
        self._blocks.clear()


class ReferenceEngine:
    """Runs steps on the CPU; `batch` lies in a HostMemory that outlives the engine.

    The scheduler's emulation calls `run_address`, a C function (void* context, uint32_t shape, uint32_t set),
    with `context_address`, from a thread of its own, one step at a time. `threads` counts that thread.
    It computes in fp32 with the values of the weights: of those in fp8, element times scale. Unlike kernels
    for many rows it never rounds activations to fp8. Of an fp8 cache it holds the values in fp32.
    Raises CheckpointError for a checkpoint that does not fit `config`, MemoryError when the KV cache does not
    fit, LibraryError.
    """

    def __init__(
        self,
        config: Model,
        checkpoint: Checkpoint,
        limits: Limits,
        shapes: Sequence[Shape],
        batch: Batch,
        threads: int,
    ) -> None:
        if threads < 1:
            raise ValueError(f"threads must be at least 1, found {threads}")
        self._library = _declare(host_library())
        self._config = config
        self._arrays: list[NDArray[Any]] = []  # what the C engine points to
        self._context: int | None = None
        model = self._load(checkpoint, limits)
        rows = np.array([(shape.kind, shape.tokens, shape.batch_slots, 0) for shape in shapes], abi.Shape)
        error = ctypes.create_string_buffer(ERROR_BYTES)
        self._context = self._library.blink_reference_engine_create(
            model.tobytes(),
            np.asarray(batch.tables).tobytes(),
            np.asarray(batch.step_sets).tobytes(),
            rows.tobytes(),
            len(rows),
            limits.total_pages,
            limits.host_pages,
            threads,
            error,
            ERROR_BYTES,
        )
        if not self._context:
            raise MemoryError(f"host engine: {error.value.decode()}")

    @property
    def run_address(self) -> int:
        address = ctypes.cast(self._library.blink_reference_engine_run, ctypes.c_void_p).value
        assert address is not None
        return address

    @property
    def context_address(self) -> int:
        assert self._context is not None, "the engine is closed"
        return self._context

    def run(self, shape: int, step_set: int) -> None:
        """Runs one step on the calling thread: tests, never beside the scheduler."""
        self._library.blink_reference_engine_run(self.context_address, shape, step_set)

    def logits(self, batch_slots: int) -> NDArray[np.float32]:
        """A copy of the last step's logits [batch slots, vocab_size], before penalties."""
        address = self._library.blink_reference_engine_logits(self.context_address)
        data = ctypes.string_at(address, 4 * batch_slots * self._config.vocab_size)
        return np.frombuffer(data, np.float32).reshape(batch_slots, -1)

    def close(self) -> None:
        """Releases everything; no step may be running."""
        if self._context is not None:
            self._library.blink_reference_engine_destroy(self._context)
        self._context = None
        self._arrays.clear()

    def _load(self, checkpoint: Checkpoint, limits: Limits) -> NDArray[Any]:
        """blink_model, whose weights `_arrays` owns."""

        def address(weight: Weight) -> int:
            return self._own(checkpoint.stacked(weight))

        config = self._config
        checkpoint.check_all(config, limits.kv_fp8)
        tables: dict[Rope, int] = {}
        for rope in config.ropes:
            tables[rope] = self._own(rope.table(config.head_dim, limits.max_context))
        layers = np.zeros(config.n_layers, model_abi.Layer)
        for record, layer in zip(layers, config.layers, strict=True):
            for name, weight in layer.weights():
                record[name] = address(weight)
            record["rope"] = tables[layer.rope]
            record["window"] = layer.window or 0
            if (growth := layer.rope.growth) is not None:
                record["growth_beta"], record["growth_context"] = growth.beta, growth.context
            if limits.kv_fp8:
                record["k_scale"] = checkpoint.cache_scale(layer.k_scale)
                record["v_scale"] = checkpoint.cache_scale(layer.v_scale)
        model = np.zeros((), model_abi.Model)
        for name in ("n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "intermediate", "vocab_size"):
            model[name] = getattr(config, name)
        model["norm_eps"], model["embed_scale"] = config.norm_eps, config.embed_scale
        model["activation"] = config.activation
        if config.experts is not None:
            model["n_experts"] = config.experts.count
            model["experts_per_token"] = config.experts.per_token
            model["expert_intermediate"] = config.experts.intermediate
            model["renormalise"] = config.experts.renormalise
        model["embed"] = address(config.embed)
        model["final_norm"] = address(config.final_norm)
        model["head"] = model["embed"] if config.head is None else address(config.head)
        model["layers"] = self._own(layers)
        return model

    def _own(self, array: NDArray[Any]) -> int:
        self._arrays.append(array)
        return array.ctypes.data


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Argument types of kernels/reference/reference_engine.h."""
    pointer, u32 = ctypes.c_void_p, ctypes.c_uint32
    create = library.blink_reference_engine_create
    create.restype = pointer
    create.argtypes = [*[ctypes.c_char_p] * 4, u32, u32, u32, u32, ctypes.c_char_p, u32]
    library.blink_reference_engine_run.argtypes = [pointer, u32, u32]
    library.blink_reference_engine_run.restype = None
    library.blink_reference_engine_logits.argtypes = [pointer]
    library.blink_reference_engine_logits.restype = pointer
    library.blink_reference_engine_destroy.argtypes = [pointer]
    library.blink_reference_engine_destroy.restype = None
    return library
