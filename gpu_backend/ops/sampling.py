"""The last kernel of a step, which samples and publishes (kernels/ops/sample.h)."""

from __future__ import annotations

from gpu_backend.ops.elementwise import Always
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Launch
from gpu_backend.ops.operations import Sample

SAMPLE_THREADS = 1024
SAMPLE_BLOCKS = (8, 4, 2)  # of a lane, in a cluster; up to kSampleBlocks
SAMPLE_SHARED_BYTES = 38 << 10


def sample_blocks(lanes: int, target: Target) -> int:
    """Blocks that share a lane: the most of whose clusters all run at once.

    A cluster lies in one group of up to 18 multiprocessors, and the scheduler has one multiprocessor. Pairs
    fill the groups; larger clusters leave some of each unused.
    """
    room = target.blocks
    return next((n for n in SAMPLE_BLOCKS if lanes * n <= (room if n == 2 else room * 3 // 4)), 1)


class ClusterSample(Always):
    name = "sample"

    def launches(self, op: Sample, target: Target) -> list[Launch]:
        lanes = op.logits.rows
        blocks = sample_blocks(lanes, target)
        return [
            Launch(
                "sample_kernel",
                (blocks, lanes, 1),
                (SAMPLE_THREADS, 1, 1),
                (FromStep.STEP_SET, FromStep.TABLES, op.logits),
                shared_bytes=SAMPLE_SHARED_BYTES,
                cluster=blocks,
            )
        ]
