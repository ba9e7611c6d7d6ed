"""Stop strings: the earliest one to be completed ends the answer, wherever the tokens' boundaries fall."""

from __future__ import annotations


class StopStrings:
    """Holds back text that may be the beginning of a stop string.

    Of two completed at the same character the first listed wins.
    """

    def __init__(self, stops: tuple[str, ...], include: bool) -> None:
        self._stops = stops
        self._include = include
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that may be shown now, and the stop string that ends the answer there, or None."""
        self._held += text
        matched, end = None, len(self._held) + 1
        for stop in self._stops:
            at = self._held.find(stop)
            if at >= 0 and at + len(stop) < end:
                matched, end = stop, at + len(stop)
        if matched is not None:
            shown = self._held[: end if self._include else end - len(matched)]
            self._held = ""
            return shown, matched
        keep = max(self._overlap(stop) for stop in self._stops)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown, None

    def flush(self) -> str:
        """What was held back, when the answer ended for another reason."""
        held, self._held = self._held, ""
        return held

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
