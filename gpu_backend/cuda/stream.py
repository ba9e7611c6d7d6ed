"""Constants of kernels/ops/linear_stream.h, which its relatives share."""

from __future__ import annotations

STREAM_THREADS = 256
STREAM_CHUNK = 32  # of k
STREAM_BLOCKS = 2  # of a multiprocessor
