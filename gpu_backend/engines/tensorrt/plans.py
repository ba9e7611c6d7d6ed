"""Plans of segments: what TensorRT deserializes, built on this machine and kept for the next start."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from gpu_backend.cuda.cache import cache_directory, drop_oldest, load, mark_used, store
from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.tensorrt.library import Library
from gpu_backend.engines.tensorrt.onnx_graph import onnx_model
from gpu_backend.engines.tensorrt.segments import Segment

DIGEST_BYTES = 32  # of a stored plan, in front of it
CACHE_ENTRIES = 512  # plans that are kept, of 0.1 to 2 MB each


@dataclass(frozen=True)
class Plan:
    """`key` is the same for plans that are the same: of one, one engine is enough. `data` is for
    Runtime.deserialize_cuda_engine. Its tensors are named as the segment's inputs and outputs are, and have
    fixed shapes; contexts bring no memory of their own (ExecutionContextAllocationStrategy.USER_MANAGED)."""

    key: str
    data: bytes


class Board(NamedTuple):
    """The GPU that plans are for: its `name`, as that of the driver, and its chip."""

    name: str
    chip: Chip


class Plans:
    """Makes plans for one GPU by one library, and keeps them for the next start."""

    def __init__(self, library: Library, board: Board) -> None:
        self._library = library
        self._board = board
        self._made: dict[str, Plan] = {}

    def plan(self, segment: Segment) -> Plan:
        """One made before, one of the cache, or a new one. Raises PlanError."""
        graph = onnx_model(segment)
        key = self._key(graph)
        if key not in self._made:
            self._made[key] = Plan(key, self._cached(key, segment, graph))
        return self._made[key]

    def _key(self, graph: bytes) -> str:
        """Of all that a plan depends on. The full library times kernels on the GPU that it builds on."""
        library, capability = self._library, self._board.chip.capability
        gpu = capability if library.rtx else self._board
        of = library.title, library.packages, library.flags, library.settings, gpu
        return hashlib.sha256(repr(of).encode() + graph).hexdigest()[:32]

    def _cached(self, key: str, segment: Segment, graph: bytes) -> bytes:
        path = cache_directory() / f"{key}.plan"
        kept = load(path) or b""
        digest, data = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
        if data and hashlib.sha256(data).digest() == digest:
            mark_used(path)
            return data
        data = self._library.build(segment.name, graph, self._board.chip.capability)
        if store(path, hashlib.sha256(data).digest() + data):
            drop_oldest(path, CACHE_ENTRIES)
        return data
