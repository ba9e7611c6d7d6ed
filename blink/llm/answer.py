"""An answer as it comes: what the frontend's choices show, as outputs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from blink.llm.outputs import CompletionOutput, Logprob, RequestOutput, TokenLogprobs
from blink.llm.sampling import RequestOutputKind, SamplingParams
from nic_frontend.api.answer import Shown
from nic_frontend.api.logprobs import TokenTexts, Words, numbers, prompt_words
from nic_frontend.ring.request import Request


class _Choice:
    """All of one choice so far, and how much of it a stream of what is new has had."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.cumulative = 0.0
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.taken = (0, 0)  # pieces and tokens


class Answer:
    """Filled by the event loop's thread; `take` may be called by another. `on_news` is called whenever there
    is more, by the former. None: nobody takes anything before the end.
    """

    def __init__(
        self, request_id: str, params: SamplingParams, on_news: Callable[[], None] | None = None
    ) -> None:
        self.request_id = request_id
        self._params = params
        self._on_news = on_news or (lambda: None)
        self.is_streamed = on_news is not None
        self._lock = threading.Lock()
        self._choices = [_Choice() for _ in range(params.n)]
        self._prompt: str | None = None
        self._requests: list[Request] = []
        self._prompt_logprobs: list[TokenLogprobs | None] | None = None
        self.has_news = False  # since it was taken

    def begin(self, prompt: str | None, requests: list[Request], texts: TokenTexts) -> None:
        self._prompt, self._requests, self._texts = prompt, requests, texts
        self._prompt_tokens: list[int] = requests[0].prompt.tolist()  # once: a stream has many outputs

    def add(self, shown: Shown) -> None:
        """What has arrived of a choice."""
        with self._lock:
            self.has_news = True
            choice = self._choices[shown.choice]
            choice.pieces += shown.pieces if self._params.detokenize else ()
            choice.tokens += shown.tokens
            if shown.logprobs is not None:
                self._add_logprobs(choice, shown.tokens, shown.logprobs)
            if shown.ending is not None:
                choice.finish_reason, choice.stop_reason = (
                    shown.ending.finish_reason,
                    shown.ending.stop_reason,
                )
        self._on_news()

    def _add_logprobs(self, choice: _Choice, tokens: list[int], words: Words) -> None:
        for token, (rank, own, likeliest) in zip(tokens, numbers(words, least=-math.inf), strict=True):
            choice.cumulative += own
            choice.logprobs.append(self._by_token(token, rank, own, likeliest))

    def _by_token(
        self, token: int, rank: int, own: float, likeliest: list[tuple[int, float]]
    ) -> TokenLogprobs:
        entries = {token: Logprob(own, rank or None, self._texts(token))}
        for place, (other, logprob) in enumerate(likeliest, 1):
            entries.setdefault(other, Logprob(logprob, place, self._texts(other)))
        return entries

    @property
    def finished(self) -> bool:
        return all(choice.finish_reason is not None for choice in self._choices)

    def take(self) -> RequestOutput:
        """The answer so far, or where the caller wants that what is new since the last call."""
        with self._lock:
            self.has_news = False
            outputs = [self._output(index, choice) for index, choice in enumerate(self._choices)]
            if not self._requests:  # aborted before it was asked
                return RequestOutput(self.request_id, self._prompt, [], None, outputs, self.finished)
            return RequestOutput(
                self.request_id,
                self._prompt,
                self._prompt_tokens,
                self._told_prompt(self._requests[0]),
                outputs,
                self.finished,
                min(one.cached_tokens for one in self._requests),
            )

    def _output(self, index: int, choice: _Choice) -> CompletionOutput:
        pieces, tokens = choice.taken
        if self._params.output_kind is RequestOutputKind.DELTA:
            choice.taken = len(choice.pieces), len(choice.tokens)
        tells = self._params.logprobs is not None
        return CompletionOutput(
            index,
            "".join(choice.pieces[pieces:]),
            choice.tokens[tokens:],
            choice.cumulative if tells else None,
            choice.logprobs[tokens:] if tells else None,
            choice.finish_reason,
            choice.stop_reason,
        )

    def _told_prompt(self, request: Request) -> list[TokenLogprobs | None] | None:
        if self._params.prompt_logprobs is None or not request.prompt_logprobs:
            return None
        if self._prompt_logprobs is None:
            known = zip(
                request.prompt[1:].tolist(), numbers(prompt_words(request)[1:], least=-math.inf), strict=True
            )
            self._prompt_logprobs = [None, *(self._by_token(token, *told) for token, told in known)]
        return self._prompt_logprobs

    def abort(self) -> None:
        """Ends what has not ended."""
        with self._lock:
            for choice in self._choices:
                choice.finish_reason = choice.finish_reason or "abort"
        self._on_news()
