"""What LLM and AsyncLLM have in common: a model, and what serves it."""

from __future__ import annotations

import hashlib
import itertools
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from blink.backend_process import START_TIMEOUT_S
from blink.llm import options
from blink.llm.engine import Engine
from blink.llm.questions import Question
from blink.llm.sampling import SamplingParams
from blink.vllm_flags import GENERATES

# Attributes of vLLM's classes that there are none of, with what to use instead.
INSTEAD = {
    "apply_model": "the model is in the backend's process",
    "beam_search": "beam search is not supported: use n of SamplingParams",
    "classify": GENERATES,
    "collective_rpc": "the model is in the backend's process",
    "embed": GENERATES,
    "encode": GENERATES,
    "get_metrics": "an output has num_cached_tokens; `blink serve` has /metrics",
    "get_tokenizer": "transformers' AutoTokenizer.from_pretrained makes one of the model's directory",
    "llm_engine": "generate() and chat() are all there is",
    "reset_prefix_cache": "a cache_salt of the prompt's own finds nothing that others have computed",
    "reward": GENERATES,
    "score": GENERATES,
    "sleep": "close() gives the memory back; another LLM(model) loads the model again",
    "start_profile": "`blink serve` has /profile, a trace of its steps",
    "stop_profile": "`blink serve` has /profile, a trace of its steps",
    "wake_up": "close() gives the memory back; another LLM(model) loads the model again",
}


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
        seed: int | None = None,
        start_timeout: float = START_TIMEOUT_S,
        **options_given: Any,
    ) -> None:
        """`model` as of `blink serve`. `ring`: the name or the path of the ring of a backend that runs and
        has a lease left; without, one is started. `seed`: prompts without a seed get one that follows from
        this and from how many were asked before, so that a program says the same when it runs again.
        `start_timeout`: seconds until the backend has to serve.

        Raises TypeError and ValueError for options, RuntimeError where there is no such model or ring, or the
        backend does not start, and ValueError or FileNotFoundError for a model that cannot be served.
        """
        frontend, backend = options.chosen(model, ring, revision, start_timeout, options_given)
        engine = self._engine = Engine(frontend, backend)
        self._seed = seed
        self._numbers = itertools.count()  # of prompts
        # Also when nobody has this object any more, and at the end of the interpreter.
        self._finalizer = weakref.finalize(self, engine.close)

    def close(self) -> None:
        """Ends what is open, gives the lease back, and ends the backend that was started. Harmless twice."""
        self._finalizer()

    if not TYPE_CHECKING:  # which would else take every name

        def __getattr__(self, name: str) -> NoReturn:
            hint = f": {INSTEAD[name]}" if name in INSTEAD else ""
            raise AttributeError(f"{type(self).__name__} has no {name!r}{hint}", name=name, obj=self)

    def _number(self, question: Question) -> tuple[int, Question]:
        """The next number, and the question with the seed that it has by that, if it is to have one."""
        number = next(self._numbers)
        if self._seed is None or question.params.seed is not None:
            return number, question
        digest = hashlib.blake2b(f"{self._seed} {number}".encode(), digest_size=8).digest()
        seed = int.from_bytes(digest, "little") >> 1
        return number, replace(question, wanted={**question.wanted, "seed": seed})

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's generation_config.json recommends; it is used where none are given."""
        return SamplingParams(**self._engine.service.sampling_defaults)
