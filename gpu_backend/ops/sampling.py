"""The last kernel of a step, which samples and publishes (kernels/ops/sampling/sample.h)."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.sample import SAMPLE_SHARED_BYTES
from gpu_backend.kernel_abi.vocab_slice import SAMPLE_BLOCKS as MOST_BLOCKS
from gpu_backend.kernel_abi.vocab_slice import SAMPLE_THREADS, SAMPLE_WARPS
from gpu_backend.ops.elementwise import Always
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Launch
from gpu_backend.ops.operations import Sample

SAMPLE_BLOCKS = (MOST_BLOCKS, MOST_BLOCKS // 2, MOST_BLOCKS // 4)  # of a batch slot, in a cluster


def sample_blocks(batch_slots: int, target: Target) -> int:
    """Blocks that share a batch slot: the most of whose clusters all run at once.

    A cluster lies in one group of up to 18 multiprocessors, and the scheduler has one multiprocessor. Pairs
    fill the groups; larger clusters leave some of each unused.
    """
    if not target.overlaps:
        return 1
    room = target.blocks
    return next((n for n in SAMPLE_BLOCKS if batch_slots * n <= (room if n == 2 else room * 3 // 4)), 1)


def mask_bytes(vocab_size: int, blocks: int) -> int:
    """A bit for each token of a block: of as many parts of the vocabulary as the number of blocks leaves."""
    return 4 * 32 * ceil_div(vocab_size, 32 * SAMPLE_WARPS * MOST_BLOCKS) * (MOST_BLOCKS // blocks)


class ClusterSample(Always):
    name = "sample"

    def launches(self, op: Sample, target: Target) -> list[Launch]:
        batch_slots = op.logits.rows
        blocks = sample_blocks(batch_slots, target)
        return [
            Launch(
                f"sample_kernel<blink::{'NoProcessors' if op.processed is None else 'LinkedProcessors'}>",
                (blocks, batch_slots, 1),
                (SAMPLE_THREADS, 1, 1),
                (FromStep.STEP_SET, FromStep.TABLES, op.logits, op.processed),
                shared_bytes=SAMPLE_SHARED_BYTES + mask_bytes(op.logits.columns, blocks),
                cluster=blocks if target.overlaps else 0,
            )
        ]
