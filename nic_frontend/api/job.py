"""A job: one API call, parsed. Its prompts times n are its choices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api.answer import Answer
from nic_frontend.api.constraint import NO_BLOCKS, Blocks, check_ends
from nic_frontend.api.keep import Kept
from nic_frontend.api.limits import Limits
from nic_frontend.api.parameters import Parameters
from nic_frontend.api.served import Served
from nic_frontend.ring.request import NO_SALT, Mailbox, PatientMailbox, Request

WARNING = "x-blink-warning"
MAX_WARNING = 1000  # characters of that header


@dataclass(frozen=True)
class Job:
    """`prompts` are uint32 arrays; choice i answers prompt i // n."""

    parameters: Parameters
    prompts: list[NDArray[np.uint32]]
    param: str  # the field that the prompt came from, for messages
    answer: Answer
    shown: frozenset[int] = frozenset()  # special tokens whose text the answer has to see
    conclusion: list[int] = field(default_factory=list)  # tokens that end a model's thinking
    grammars: Blocks = NO_BLOCKS  # what the answers are held to
    warnings: list[str] = field(default_factory=list)
    kept: Kept | None = None  # where the answer is stored

    def __post_init__(self) -> None:
        check_ends(self.parameters.sampling, self.grammars)

    def mailbox(self, limit: int, *, streamed: bool) -> Mailbox:
        """For its requests. Tokens are looked at one by one where somebody waits for each, or where one may
        end the answer.
        """
        looks_at_each = streamed or self.parameters.stops or self.conclusion or self.answer.may_end_early
        return (Mailbox if looks_at_each else PatientMailbox)(limit)

    def requests(
        self, limits: Limits, mailbox: Mailbox, arrived: float, client: int = 0, *, hides_cached: bool = False
    ) -> list[Request]:
        """One for each choice. `hides_cached`: a client without a salt is not told what was cached.

        Raises ApiError 400 where a prompt and its answer do not fit.
        """
        n = self.parameters.n

        def request(index: int) -> Request:
            prompt = self.prompts[index // n]
            sampling = self.parameters.of_choice(len(prompt), index % n, limits, self.param)
            return Request(
                index, prompt, sampling, mailbox, arrived, grammar=self.grammars.whole, client=client,
                tells_cached=sampling.salt != NO_SALT or not hides_cached,
            )  # fmt: skip

        return [request(index) for index in range(len(self.prompts) * n)]

    def warning_headers(self) -> dict[str, str]:
        """What was accepted and does not mean what the client may think."""
        if not self.warnings:
            return {}
        text = "; ".join(self.warnings)[:MAX_WARNING]  # names in it may be as long as a body
        return {WARNING: "".join(c if " " <= c <= "~" else "?" for c in text)}


Parser = Callable[[dict[str, Any], Served], Awaitable[Job]]
