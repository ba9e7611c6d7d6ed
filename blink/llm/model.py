"""What LLM and AsyncLLM have in common: a model, and what serves it."""

from __future__ import annotations

import itertools
import weakref
from pathlib import Path
from typing import Any

from blink.backend_process import START_TIMEOUT_S
from blink.llm import options
from blink.llm.engine import Engine
from blink.llm.sampling import SamplingParams


class Model:
    """`options_given` are the flags of `blink backend` with underscores, such as max_model_len=4096, and
    `chat_template`, `reasoning_parser` and `attach_timeout` of `blink frontend`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        ring: str | Path | None = None,
        revision: str | None = None,
        start_timeout: float = START_TIMEOUT_S,
        **options_given: Any,
    ) -> None:
        """`model` as of `blink serve`. `ring`: the name or the path of the ring of a backend that runs and
        has a lease left; without, one is started. `start_timeout`: seconds until that has to serve.

        Raises TypeError and ValueError for options, RuntimeError where there is no such model or ring, or the
        backend does not start, and ValueError or FileNotFoundError for a model that cannot be served.
        """
        frontend, backend = options.chosen(model, ring, revision, start_timeout, options_given)
        engine = self._engine = Engine(frontend, backend)
        self._numbers = itertools.count()
        # Also when nobody has this object any more, and at the end of the interpreter.
        self._finalizer = weakref.finalize(self, engine.close)

    def close(self) -> None:
        """Ends what is open, gives the lease back, and ends the backend that was started. Harmless twice."""
        self._finalizer()

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's generation_config.json recommends; it is used where none are given."""
        return SamplingParams(**self._engine.service.sampling_defaults)
