"""What a server can do for requests."""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.errors import PromptTooLong, bad_request
from ringbuffer import abi


@dataclass(frozen=True)
class Limits:
    """What this server can do, from the ring's header, the lease and its options. Numbers are of tokens, but
    for `max_choices`.
    """

    max_context: int
    prompt_heap: int  # of the lease
    output_heap: int
    vocab_size: int
    max_choices: int  # prompts times n of one request
    priorities: bool = False  # requests may have one that is not 0
    eos_ids: tuple[int, ...] = ()  # tokens that end an answer
    processors: tuple[str, ...] = ()  # names of logits processors, in the order of their indices

    def check_choices(self, prompts: int, n: int, param: str) -> None:
        """Raises ApiError 400 when this server could never hold that many choices at once."""
        if prompts * n > self.max_choices:
            raise bad_request(
                f"'{param}' and 'n' ask for {prompts * n} choices; one request may have at most "
                f"{self.max_choices}",
                "n" if n > 1 else param,
                "invalid_value",
            )

    def max_answer(self, prompt_tokens: int, param: str) -> int:
        """Tokens left for the answer. Raises ApiError 400 when the prompt is empty or leaves no room."""
        if prompt_tokens == 0:
            raise bad_request(f"'{param}' has no tokens; at least one is needed", param, "invalid_value")
        longest = min(self.max_context - 1, self.prompt_heap)
        if prompt_tokens > longest:
            raise PromptTooLong(prompt_tokens, longest, self.max_context, param)
        return min(self.max_context - prompt_tokens, self.output_heap)

    def max_open_answer(self, room: int, choices: int) -> int:
        """Tokens of an answer of at most `room` where the client gives no limit.

        All choices of one request fit the heap together.
        """
        granule = abi.OUTPUT_GRANULE
        return min(room, max(self.output_heap // choices // granule, 1) * granule)

    def check_priority(self, priority: int) -> None:
        """Raises ApiError 400 when it would have no effect."""
        if priority and not self.priorities:
            raise bad_request(
                f"'priority' is {priority}, but this server does not order requests by priority; leave it "
                "out, or start the server with --scheduling-policy priority",
                "priority",
                "unsupported_parameter",
            )
