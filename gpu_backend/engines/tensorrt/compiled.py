"""Kernels that TensorRT for RTX compiles when a context is made or runs first: for all contexts at once, and
kept for the next start. The full library compiles when it builds, and has none of this."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from gpu_backend.cuda.cache import cache_directory, drop_oldest, load, store

CACHE_ENTRIES = 8  # models, each with its sizes and its GPU


class CompiledKernels:
    """`of` is what they depend on: the library, the GPU, the model and its sizes. The library itself looks
    whether kept ones suit the machine, and takes none that do not.

    It must outlive the contexts that share it, and end before their engines.
    """

    def __init__(self, of: object) -> None:
        self._path = cache_directory() / f"{hashlib.sha256(repr(of).encode()).hexdigest()[:32]}.kernels"
        self._kept = b""
        self._cache: Any = None

    def share(self, config: Any) -> None:
        """`config` is that of a context that is about to be made."""
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            self._kept = load(self._path) or b""
            if self._kept:
                self._cache.deserialize(self._kept)
        config.set_runtime_cache(self._cache)

    def close(self) -> None:
        """Keeps them."""
        if self._cache is None:
            return
        with contextlib.suppress(RuntimeError):  # the GPU may be lost, and serving does not need them kept
            found = bytes(self._cache.serialize())
            if found != self._kept and store(self._path, found):
                drop_oldest(self._path, CACHE_ENTRIES)
        self._cache = None
