"""The frontend's side of the exchange: one TCP connection, which holds the lease while it is open."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from ringbuffer.rdma.messages import ALIVE, ALIVE_S, HANDSHAKE_S, Claim, Grant
from ringbuffer.rdma.session import FRAME, OPENING, ExchangeError, Role, Session, WrongKey, frame_size

CONNECT_S = 0.5  # a SYN that an interruption swallowed is sent again by the next attempt, not after a second


class Exchange:
    """A connection to the exchange of the backend at `host`:`port`. Call `claim` once, then `keep`.

    Raises OSError when it cannot be reached within CONNECT_S. `timeout_s` bounds all until the grant.
    """

    def __init__(self, host: str, port: int, key: bytes, timeout_s: float = HANDSHAKE_S) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._session = Session(key, Role.FRONTEND)
        self._where = f"{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=CONNECT_S)
        self.local_address: str = self._socket.getsockname()[0]
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def claim(self, claim: Claim) -> Grant:
        """Raises ExchangeError when the backend refuses, is another program, or takes too long."""
        try:
            self._socket.sendall(self._session.opening())
            self._session.begin(self._receive(OPENING.size))
            self._socket.sendall(self._session.seal(claim.body()))
            length, code = frame_size(self._receive(FRAME.size))
            return Grant.parse(self._session.unseal(code, self._receive(length)))
        except WrongKey as error:
            raise ExchangeError(f"the backend at {self._where} has another key than this frontend") from error
        except TimeoutError as error:
            raise ExchangeError(f"the backend's exchange at {self._where} does not answer") from error
        except ConnectionError as error:
            raise ExchangeError(f"the backend's exchange at {self._where} closed the connection") from error

    def keep(self, on_end: Callable[[str], None]) -> None:
        """Says "alive" from a thread until `close`. Calls `on_end` once, from there, when the backend ends
        the connection: it has then destroyed its queue pairs (V4).

        A backend whose exchange is stopped ends nothing: the connection is then just silent.
        """
        self._thread = threading.Thread(target=self._keep, args=(on_end,), name="exchange", daemon=True)
        self._thread.start()

    def _keep(self, on_end: Callable[[str], None]) -> None:
        # A stopped exchange does not read: what does not fit the socket's buffer is not sent, nor missed.
        self._socket.settimeout(ALIVE_S)
        unsent = b""
        while not self._closing.is_set():
            try:
                unsent = unsent or self._session.seal(ALIVE)
                with contextlib.suppress(BlockingIOError):
                    unsent = unsent[self._socket.send(unsent, socket.MSG_DONTWAIT) :]
                if self._socket.recv(1):
                    raise ExchangeError("it sent something that nobody asked for")
                raise ConnectionError("it closed the connection")
            except TimeoutError:
                continue
            except (OSError, ExchangeError) as error:
                if not self._closing.is_set():
                    on_end(f"the backend's exchange at {self._where} is gone: {error}")
                return

    def stop_keeping(self) -> None:
        """Ends the thread of `keep`; `on_end` is not called any more. The connection stays."""
        self._closing.set()
        if self._thread is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)  # wakes the thread
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self.stop_keeping()
        self._socket.close()

    def _receive(self, n_bytes: int) -> bytes:
        found = b""
        while len(found) < n_bytes:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(n_bytes - len(found))
            if not part:
                raise ConnectionError
            found += part
        return found
