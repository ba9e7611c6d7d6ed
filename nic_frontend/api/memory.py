"""What requests to /v1/responses may remember, as the parser of one request sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nic_frontend.store.seal import Seal
from nic_frontend.store.store import OwnResponses

FLAG = "--store-responses"


@dataclass(frozen=True)
class Memory:
    """`owner` is who asks: the digest of its API key, or nothing where there are no keys."""

    store: OwnResponses | None  # those of `owner`; None: this server stores none
    seal: Seal
    owner: bytes
    most_bytes: int  # of a conversation: as many as a body may have
    within_s: float  # how long a response may take
    hold: Callable[[int], None]  # counts so many bytes to the request's body; raises ApiError 503

    def sealed(self, text: str) -> str | None:
        return self.seal.sealed(self.owner, text)

    def opened(self, sealed: str) -> str:
        """Raises NotOpened."""
        return self.seal.opened(self.owner, sealed)
