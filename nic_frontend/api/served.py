"""The model that is served, as the parsers of requests see it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nic_frontend.api.limits import Limits
from nic_frontend.api.logprobs import TokenTexts
from nic_frontend.api.memory import Memory
from nic_frontend.compiling.store import ANYBODY, Asker, Grammars
from nic_frontend.parsing.answer_form import AnswerForms
from nic_frontend.templates.renderer import Renderer
from nic_frontend.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Served:
    name: str
    tokenizer: Tokenizer
    limits: Limits
    forms: AnswerForms  # of its answers
    template: Renderer | None  # of chats
    grammars: Grammars
    asker: Asker = ANYBODY  # of the request
    memory: Memory | None = None  # of whoever asks; only /v1/responses has use for it

    def to(self, asker: Asker, memory: Memory | None = None) -> Served:
        """The same for one request."""
        return replace(self, asker=asker, memory=memory)

    def texts(self, *, by_id: bool | None = False) -> TokenTexts:
        """Of the model's tokens."""
        return TokenTexts(self.tokenizer.bytes_of, self.tokenizer.special, bool(by_id))
