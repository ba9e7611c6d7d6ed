"""What all objects and events of one call have in common, as OpenAI writes completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api.answer import Usage, compact, written
from nic_frontend.api.parameters import Parameters
from nic_frontend.errors import ApiError
from nic_frontend.http.long_json import Batches, numbers_of
from nic_frontend.ring.request import Request

DONE = "data: [DONE]\n\n"


class Envelope:
    """Server-sent events are `data: {json}`, and then [DONE] (API reference, "Streaming"). Their constant
    parts are rendered once.

    Where a request asks for it, every event says how much its choice has used so far (vLLM's
    continuous_usage_stats), and has its tokens' ids, the first one of a choice the prompt's (vLLM's
    return_token_ids).
    """

    def __init__(self, chat: bool, model: str, parameters: Parameters) -> None:
        kind = "chat.completion" + (".chunk" if parameters.stream else "")
        self.head: dict[str, Any] = {
            "id": ("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(16),
            "object": kind if chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self.start = "data: " + compact(self.head)[:-1]
        self.choice = self.start + ',"choices":[{"index":'
        self.shows_ids = parameters.return_token_ids
        self._parameters = parameters
        self._requests: list[Request] = []
        self._prompts: dict[int, NDArray[np.uint32]] = {}  # not shown yet
        self._no_usage = "}]" + (',"usage":null' if parameters.include_usage else "") + "}\n\n"
        self.reasoning_tokens: Callable[[int], int] | None = None  # of a choice

    def begin(self, requests: list[Request]) -> None:
        self._requests = list(requests)
        if self.shows_ids:
            self._prompts = {request.index: request.prompt for request in requests}

    def tail(self, index: int, n_tokens: int) -> str:
        """The end of an event of a choice that has had so many tokens."""
        if not self._parameters.continuous_usage:
            return self._no_usage
        request = self._requests[index]
        reasoning = self.reasoning_tokens(index) if self.reasoning_tokens else None
        usage = Usage(len(request.prompt), n_tokens, request.told_cached_tokens, reasoning)
        return f'}}],"usage":{compact(usage.body())}}}\n\n'

    def ids(self, index: int, tokens: list[int]) -> str:
        if not self.shows_ids:
            return ""
        return f',"token_ids":{written(tokens)}' + self._prompt(index)

    def _prompt(self, index: int) -> str:
        """The ids of a choice's prompt, where they have not been shown before."""
        prompt = self._prompts.pop(index, None)
        return "" if prompt is None else f',"prompt_token_ids":{written(prompt.tolist())}'

    def role(self, index: int) -> str:
        """The first event of a chat's choice."""
        shown = self._prompt(index)
        delta = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
        choice = f'{{"index":{index},{delta}{self.tail(index, 0)}'
        return f'{self.start}{shown},"choices":[{choice}'

    def closing(self, usage: Usage) -> str:
        if not self._parameters.include_usage:
            return DONE
        return f'{self.start},"choices":[],"usage":{compact(usage.body())}}}\n\n{DONE}'

    @staticmethod
    def failed(error: ApiError) -> str:
        return f"data: {compact(error.body)}\n\n{DONE}"

    def prompt_ids(self, index: int) -> Batches:
        return numbers_of(self._requests[index].prompt)
