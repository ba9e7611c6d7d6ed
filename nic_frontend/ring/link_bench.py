"""What a transport costs, measured over its own link and the token reader (native/link_bench.h)."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from nic_frontend.abi import Drained
from nic_frontend.library import TRIP_DTYPE, library
from nic_frontend.ring.lease import Lease
from nic_frontend.ring.token_reader import TokenReader
from nic_frontend.transport.base import Transport, TransportError

TIMEOUT_S = 5.0  # of one request: orders of magnitude more than the slowest


def trips(transport: Transport, lease: Lease, prompt_tokens: int, n: int) -> NDArray[np.void]:
    """Nanoseconds of n requests of one token, one after the other: abi.Trip [n].

    The lease's slots are idle, before and after. Raises TransportError when the ring's other end is silent.
    """
    found = np.zeros(n, TRIP_DTYPE)
    done = library().blink_link_trips(
        transport.link, 0, lease.epoch, prompt_tokens, n, int(TIMEOUT_S * 1e9), found.ctypes.data
    )
    if done < n:
        raise TransportError(f"{transport.capabilities.name}: request {done} of {n} was not answered")
    return found


def drain(
    reader: TokenReader, transport: Transport, n: int, prompt_tokens: int, max_tokens: int, timeout_s: float
) -> Drained:
    """Reads an answer of `max_tokens` from each of n slots. Raises TransportError if that takes too long."""
    found = Drained()
    if library().blink_reader_drain_all(
        reader.handle, transport.link, n, prompt_tokens, max_tokens, int(timeout_s * 1e9), ctypes.byref(found)
    ):
        raise TransportError(
            f"{found.tokens} of {n * max_tokens} tokens were read within {timeout_s:g} seconds"
        )
    return found
