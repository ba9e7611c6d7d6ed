"""The bytes of a vocabulary's tokens in an engine's memory, for the sampler (blink_vocabulary)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.engines.base import Batch, Memory
from ringbuffer.token_bytes import answer_bytes


def store_vocabulary(memory: Memory, batch: Batch, directory: Path) -> None:
    """Puts the bytes of the tokens of the model in `directory` into `memory`, and names them in `batch`."""
    tables: Any = batch.tables
    table = answer_bytes(directory, int(tables["vocab_size"]))
    assert table is not None, "its vocabulary is not of bytes, and there are grammars"
    for name, array in vocabulary_arrays(table).items():
        address = memory.allocate(max(1, array.nbytes))
        memory.write(address, array.tobytes())
        tables["vocabulary"][name] = address


def vocabulary_arrays(table: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """The members of blink_vocabulary for tokens with these bytes."""
    first = np.zeros(len(table) + 1, np.uint32)
    np.cumsum([len(raw) for raw in table], out=first[1:])
    return {"first": first, "bytes": np.frombuffer(b"".join(table), np.uint8)}
