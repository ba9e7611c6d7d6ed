"""Constants of kernels/ops/linear_stream.h, which its relatives share."""

from __future__ import annotations

STREAM_THREADS = 256
STREAM_CHUNK = 32  # of k
STREAM_BLOCKS = 2  # of a multiprocessor
STREAM_STAGE = 2048  # of k: what the 8 warps of a block have on its way of a row


def streams_whole(n_in: int) -> bool:
    """Whether a product with so many columns goes through k in whole stages. Where some are small, too few
    weights are on their way, and the wide product is faster even for one row: Qwen3-32B, whose hidden size is
    5120, takes 18.8 ms as one kernel of such stages and 15.5 as wide products."""
    return n_in <= STREAM_STAGE or n_in % STREAM_STAGE == 0
