"""Constants of kernels/ops/linear_stream.h, which its relatives share."""

from __future__ import annotations

STREAM_THREADS = 256
STREAM_CHUNK = 32  # of k
STREAM_BLOCKS = 2  # of a multiprocessor
STREAM_ROUND = 2048  # of k: what the 8 warps of a block have on its way of a row


def streams_whole(n_in: int) -> bool:
    """Whether a product with so many columns goes through k in whole rounds. Else the last is small, too few
    weights are on their way, and the wide product is faster even for one row."""
    return n_in <= STREAM_ROUND or n_in % STREAM_ROUND == 0
