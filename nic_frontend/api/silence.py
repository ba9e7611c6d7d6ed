"""How long a stream has been silent. Proxies, and clients with a limit of their own, give up on one that says
nothing for long, as while a request waits behind others or is paused.
"""

from __future__ import annotations

import asyncio

from nic_frontend.ring.request import Mailbox

SILENCE_S = 10.0  # after which something is sent; the least limit that is common is 15 s


class Silence:
    """Wakes a stream's handler when nothing was sent for SILENCE_S. `end` it when the stream is over.

    The timer is not set anew for every event, which would cost each token something: when it is due, it looks
    how long ago the last one was.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self.is_long = False
        self._mailbox = mailbox
        self._loop = asyncio.get_running_loop()
        self._sent_s = self._loop.time()
        self._timer = self._loop.call_later(SILENCE_S, self._look)

    def broken(self) -> None:
        """Something was sent just now."""
        self.is_long = False
        self._sent_s = self._loop.time()

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        left_s = self._sent_s + SILENCE_S - self._loop.time()
        if left_s < 0.001:  # a loop's clock may have milliseconds
            left_s = SILENCE_S
            if not self._mailbox.sending:  # else it is the client that takes nothing
                self.is_long = True
                self._mailbox.nudge()
        self._timer = self._loop.call_later(left_s, self._look)
