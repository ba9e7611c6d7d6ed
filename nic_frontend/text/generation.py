"""The text of one choice as its tokens arrive: detokenized, cut at stop strings, with the reason it ended."""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.text.detokenizer import Detokenizer
from nic_frontend.text.stop import StopAutomaton, StopStrings
from ringbuffer.abi import Reason


@dataclass(frozen=True, slots=True)
class Ending:
    finish_reason: str  # "stop" or "length"
    stop_reason: str | int | None = None  # the stop string, or the stop token's id


class Generation:
    """One choice.

    `feed` it every token in order until `ending` is set; `n_tokens` then counts what the answer used.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: StopAutomaton | None = None,
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self.n_tokens = 0
        self.ending: Ending | None = None
        self._detokenizer = detokenizer
        self._stops = StopStrings(stops, include_stop) if stops is not None else None
        self._include_stop = include_stop
        self._min_tokens = min_tokens

    @property
    def held(self) -> str:
        """Text that is not shown yet because a stop string may begin with it."""
        return self._stops.held if self._stops is not None else ""

    def feed(self, token: int) -> str:
        """The text to show now. Sets `ending` when the token completed a stop string."""
        self.n_tokens += 1
        text = self._detokenizer.feed(token)
        if self._stops is None or self.n_tokens <= self._min_tokens:
            return text
        shown, matched = self._stops.feed(text)
        if matched is not None:
            self.ending = Ending("stop", matched)
        return shown

    def finish(self, last: list[int], reason: int) -> str:
        """The scheduler ended the answer with the tokens `last`, for one of the reasons for which answers end
        (reasons.ANSWERED): the rest of the text.
        """
        stop_token = last[-1] if last and reason != Reason.LENGTH else None
        shown = ""
        for token in last[:-1] if stop_token is not None and not self._include_stop else last:
            shown += self.feed(token)
            if self.ending is not None:
                return shown
        if stop_token is not None and not self._include_stop:
            self.n_tokens += 1  # it is counted, not shown
        rest = self._detokenizer.flush()
        if self._stops is not None:
            rest, matched = self._stops.feed(rest)
            if matched is not None:
                self.ending = Ending("stop", matched)
                return shown + rest
            rest += self._stops.flush()
        if reason == Reason.LENGTH:
            self.ending = Ending("length")
        else:
            self.ending = Ending("stop", stop_token if reason == Reason.STOP_ID else None)
        return shown + rest
