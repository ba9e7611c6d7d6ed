"""What the scheduler is given and what can be read of it, wherever it runs (kernels/scheduler/state.h)."""

from __future__ import annotations

import math
import secrets
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend import abi
from gpu_backend import scheduler_abi as layout
from gpu_backend.arithmetic import power_of_two
from gpu_backend.engines.base import Batch, Limits, Memory
from gpu_backend.engines.graph_grid import GraphGrid
from ringbuffer.region import Geometry


def _chance(share: float) -> int:
    """In units of 2^-32, below 1."""
    return min(int(share * 2**32), 2**32 - 1)


@dataclass(frozen=True)
class Pace:
    """Times of the scheduler's loop, in nanoseconds (blink_scheduler_config)."""

    arm_margin_ns: int
    scan_interval_ns: int
    step_timeout_ns: int


GPU_PACE = Pace(arm_margin_ns=30_000, scan_interval_ns=5_000, step_timeout_ns=10_000_000_000)
CPU_PACE = Pace(arm_margin_ns=200_000, scan_interval_ns=200_000, step_timeout_ns=300_000_000_000)


GRAMMAR_PLACES = layout.SCHEDULER_THREADS  # grammars in device memory at once: each thread looks at one
MOST_DRAFT_PLACES = 1 << 16  # of a sequence, 4 bytes each: what stands there earlier is overwritten
EVENTS_QUEUED = 2  # a page: what a reader of KV events may be behind before it is told everything anew


class SchedulerSetup:
    """The scheduler's arrays in `memory`, and its configuration.

    `ring_address` is where the scheduler sees the region. `executables` uint64 [n_shapes, STEP_SETS] are the
    graphs that the scheduler on the GPU launches by itself; None where a host thread runs the engine's steps.
    """

    def __init__(
        self,
        memory: Memory,
        geometry: Geometry,
        ring_address: int,
        limits: Limits,
        grid: GraphGrid,
        batch: Batch,
        executables: NDArray[np.uint64] | None,
        pace: Pace,
        host_driven: bool,
    ) -> None:
        self._memory = memory
        self._n_shapes = len(grid.shapes)
        config = np.zeros((), layout.SchedulerConfig)
        self._point_at_ring(config, geometry, ring_address)
        config["tables"] = batch.tables
        config["sets"] = batch.step_sets

        shapes = np.zeros(self._n_shapes, abi.Shape)
        for record, shape in zip(shapes, grid.shapes, strict=True):
            record["kind"], record["verifies"] = shape.kind, shape.verifies
            record["tokens"], record["batch_slots"] = shape.tokens, shape.batch_slots
        config["shapes"] = self._store(shapes)
        config["decode_lookup"] = self._store(grid.decode_lookup)
        config["prefill_lookup"] = self._store(grid.prefill_lookup)
        config["mixed_lookup"] = self._store(grid.mixed_lookup)
        config["verify_lookup"] = self._store(grid.verify_lookup)
        config["executables"] = 0 if executables is None else self._store(executables)
        config["seen"] = memory.allocate(8 * geometry.n_slots)
        config["requests"] = memory.allocate(layout.Request.itemsize * geometry.n_slots)
        config["sequences"] = memory.allocate(layout.Sequence.itemsize * limits.n_sequences)
        config["free_pages"] = memory.allocate(4 * limits.total_pages)
        # A host does not see the tokens that a device samples, which pages are found by.
        config["prefix_cache"] = limits.prefix_cache and not host_driven
        config["hash_key"] = secrets.randbits(64)
        config["host_pages"] = 0 if host_driven else limits.host_pages
        config["copy_shape"] = grid.copy_shape
        n_pages = limits.total_pages + int(config["host_pages"])
        config["pages"] = memory.allocate(layout.Page.itemsize * n_pages)
        config["page_tokens"] = memory.allocate(4 * n_pages * limits.page_size)
        config["n_index"] = power_of_two(4 * n_pages)
        config["page_index"] = memory.allocate(4 * int(config["n_index"]))
        config["n_idle"] = power_of_two(2 * limits.total_pages)
        config["idle_pages"] = memory.allocate(4 * int(config["n_idle"]))
        if geometry.kv_event_capacity:
            config["n_kv_event_queue"] = power_of_two(
                max(EVENTS_QUEUED * limits.total_pages, 4 * layout.SCHEDULER_THREADS)
            )
            config["kv_event_queue"] = memory.allocate(8 * int(config["n_kv_event_queue"]))
            config["kv_event_told"] = memory.allocate(4 * limits.total_pages)
        if limits.grammar_words:
            config["max_grammar_words"] = limits.grammar_words
            config["n_grammar_places"] = GRAMMAR_PLACES
            config["grammar_places"] = memory.allocate(layout.GrammarPlace.itemsize * GRAMMAR_PLACES)
        if limits.max_drafts and not host_driven:  # a host does not see the tokens that a device samples
            self._speculate(config, limits)
        config["shape_times"] = memory.allocate(layout.ShapeTime.itemsize * self._n_shapes)
        config["trace"] = memory.allocate(layout.StepTrace.itemsize * layout.TRACE_STEPS)
        config["state"] = memory.allocate(layout.SchedulerState.itemsize)
        config["n_shapes"] = self._n_shapes
        for name in (
            "max_batch", "total_pages", "max_prefill_tokens", "max_prefill_slots", "max_mixed_tokens",
            "mixed_share", "attention_keys", "target_itl_ns", "min_itl_ns", "priorities",
        ):  # fmt: skip
            config[name] = getattr(limits, name)
        config["stage_words"] = layout.STAGE_WORDS
        for name in ("arm_margin_ns", "scan_interval_ns", "step_timeout_ns"):
            config[name] = getattr(pace, name)
        self.config: bytes = config.tobytes()
        self._addresses = {name: int(config[name]) for name in ("state", "shape_times", "trace")}

    def _speculate(self, config: NDArray[Any], limits: Limits) -> None:
        """What drafts.h and lookup.h need."""
        for name in ("max_drafts", "max_verify_rows", "longest_match", "shortest_match"):
            config[name] = getattr(limits, name)
        config["drafts_per_matched_token"] = math.ceil(limits.drafts_per_matched_token * 2**16)
        config["least_share"] = int(limits.least_share * 2**16)
        lengths = 1 + limits.longest_match - limits.shortest_match
        if limits.drafts_per_matched_token:
            lengths = layout.SUFFIX_LENGTHS
        config["n_draft_places"] = min(MOST_DRAFT_PLACES, power_of_two(2 * limits.max_context * lengths))
        places = limits.n_sequences * int(config["n_draft_places"])
        config["draft_places"] = self._memory.allocate(4 * places)
        config["simulates_acceptance"] = bool(limits.acceptance)
        config["copied_share"] = _chance(limits.copied_share)
        for n, chance in enumerate(limits.acceptance):
            config["acceptance_chances"][n] = _chance(chance)

    def _store(self, array: NDArray[Any]) -> int:
        address = self._memory.allocate(array.nbytes)
        self._memory.write(address, array.tobytes())
        return address

    @staticmethod
    def _point_at_ring(config: NDArray[Any], geometry: Geometry, ring_address: int) -> None:
        at = geometry.offsets()
        for name in at.keys() - {"requests", "end"}:
            config[name] = ring_address + at[name]
        config["request_words"] = ring_address + at["requests"]
        for name, size in asdict(geometry).items():
            config[name] = size

    def state(self) -> NDArray[Any]:
        """A copy of blink_scheduler_state; whole fields, but not all of one moment while it runs."""
        raw = self._memory.read(self._addresses["state"], layout.SchedulerState.itemsize)
        return np.frombuffer(raw, layout.SchedulerState)[0]  # type: ignore[no-any-return]

    def trace(self) -> NDArray[Any]:
        """blink_step_trace of the last TRACE_STEPS steps, oldest first; read it when nothing runs."""
        raw = self._memory.read(self._addresses["trace"], layout.StepTrace.itemsize * layout.TRACE_STEPS)
        steps = np.sort(np.frombuffer(raw, layout.StepTrace), order="id")
        return steps[steps["id"] > 0]

    def shape_times(self) -> NDArray[Any]:
        """blink_shape_time of every shape, in the grid's order."""
        raw = self._memory.read(self._addresses["shape_times"], layout.ShapeTime.itemsize * self._n_shapes)
        return np.frombuffer(raw, layout.ShapeTime)
