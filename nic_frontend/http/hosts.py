"""Which names this server answers to.

A page whose own name is made to lead here (DNS rebinding) is of the same origin for its browser, which then
asks with that name.
"""

from __future__ import annotations

import ipaddress

from nic_frontend.errors import ApiError, bad_request
from nic_frontend.http.asgi import Scope

LOCAL = ("localhost", "127.0.0.1", "::1")


class Hosts:
    """`allowed`: names and addresses without ports; None: any."""

    def __init__(self, allowed: tuple[str, ...] | None) -> None:
        self._allowed = None if allowed is None or "*" in allowed else frozenset(map(name_of, allowed))

    def check(self, scope: Scope) -> None:
        """Raises ApiError 400 without one host, 421 for a host that is another."""
        given = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
        if len(given) > 1 or (not given and scope["http_version"] != "1.0"):
            raise bad_request("a request names one host (RFC 9112, 3.2)")
        if self._allowed is None or not given:
            return
        if (host := name_of(given[0])) not in self._allowed:
            message = f"this server does not answer to the host '{host[:100]}'; start it with --allowed-hosts"
            raise ApiError(421, message, code="host_not_allowed")


def default_hosts(address: str, needs_key: bool) -> tuple[str, ...] | None:
    """Where only this machine is served, and without a key, no page from elsewhere may lead there."""
    return (*LOCAL, address) if not needs_key and is_loopback(address) else None


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def name_of(host: str) -> str:
    """Of "example.com:8000", "[::1]:8000" or "::1", without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host
