"""Answers to wrong keys come late: whoever guesses has few guesses, from however many connections."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict

from nic_frontend.http.asgi import Scope

PAUSE_S = 0.25  # between two such answers to one address, after the first few
FREE = 5  # of them come at once
LONGEST_S = 10.0  # that one waits; whoever sends more of them than that is not waited for
MAX_ADDRESSES = 4096  # that are remembered


class WrongKeys:
    def __init__(self) -> None:
        self._next: OrderedDict[str, float] = OrderedDict()  # of an address: when the next answer is due

    async def wait(self, scope: Scope) -> bool:
        """Returns when the answer to a wrong key is due. False, and at once: there are too many of them."""
        now = asyncio.get_running_loop().time()
        address = network_of(scope)
        due = max(self._next.pop(address, 0.0), now - FREE * PAUSE_S) + PAUSE_S
        if due - now > LONGEST_S:
            self._next[address] = due - PAUSE_S
            return False
        self._next[address] = due
        while len(self._next) > MAX_ADDRESSES:
            self._next.popitem(last=False)
        await asyncio.sleep(max(0.0, due - now))
        return True


def network_of(scope: Scope) -> str:
    """The client's address; of IPv6 the network, of which one client has all addresses."""
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    if address.version == 4:
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.ip_network(f"{address}/64", strict=False))
