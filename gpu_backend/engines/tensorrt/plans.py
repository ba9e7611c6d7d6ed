"""Plans of segments: what TensorRT deserializes, built on this machine and kept for the next start."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.cuda.chip import Capability
from gpu_backend.engines.tensorrt.library import Library
from gpu_backend.engines.tensorrt.segments import Segment


class PlanError(RuntimeError):
    """TensorRT refused a segment; the message has its name and the library's own errors."""


@dataclass(frozen=True)
class Plan:
    """`key` is the same for plans that are the same: of one, one engine is enough. `data` is for
    Runtime.deserialize_cuda_engine. Its tensors are named as the segment's inputs and outputs are, and have
    fixed shapes; contexts bring no memory of their own (ExecutionContextAllocationStrategy.USER_MANAGED)."""

    key: str
    data: bytes


class Plans:
    """Makes plans for one GPU by one library."""

    def __init__(self, library: Library, capability: Capability) -> None:
        self._library = library
        self._capability = capability

    def plan(self, segment: Segment) -> Plan:
        """From the cache, or built. Raises PlanError."""
        raise NotImplementedError
