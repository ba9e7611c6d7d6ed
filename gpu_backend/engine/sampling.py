"""The last kernel of a step, which samples and publishes (kernels/ops/sample.h)."""

from __future__ import annotations

from gpu_backend.cuda.driver import Argument, Kernel, Stream

SAMPLE_THREADS = 1024
SAMPLE_BLOCKS = (8, 4, 2)  # of a lane, in a cluster; up to kSampleBlocks
SAMPLE_SHARED_BYTES = 38 << 10


def sample_blocks(lanes: int, n_multiprocessors: int) -> int:
    """Blocks that share a lane: the most of whose clusters all run at once.

    A cluster lies in one group of up to 18 multiprocessors, and the scheduler has one multiprocessor. Pairs
    fill the groups; larger clusters leave some of each unused.
    """
    room = n_multiprocessors - 1
    return next((n for n in SAMPLE_BLOCKS if lanes * n <= (room if n == 2 else room * 3 // 4)), 1)


def launch_sample(
    kernel: Kernel, stream: Stream, n_multiprocessors: int, lanes: int, *arguments: Argument
) -> None:
    """The last kernel of a step: samples and publishes. `arguments` are sample_kernel's."""
    blocks = sample_blocks(lanes, n_multiprocessors)
    grid, block = (blocks, lanes, 1), (SAMPLE_THREADS, 1, 1)
    kernel.launch(
        grid, block, stream, *arguments, shared_bytes=SAMPLE_SHARED_BYTES, overlap=True, cluster=blocks
    )
