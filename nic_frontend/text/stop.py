"""Stop strings: the earliest one to be completed ends the answer, wherever the tokens' boundaries fall."""

from __future__ import annotations

from collections import deque

ROOT = 0


class StopAutomaton:
    """All stop strings of a call as one automaton (Aho and Corasick, 1975).

    A state is a beginning of some stop string: the longest one that the text read so far ends with. Reading a
    character moves to another state in constant time on average, however many and long the stop strings are.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stops = stops
        self.lengths = [0]  # of each state: how many characters its beginning has
        self._of = [0]  # and which stop string begins so
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [ROOT]  # the longest end of it, but for itself, that is a beginning as well
        self._completed: list[int | None] = [None]  # the first listed stop string that it ends with
        for number, stop in enumerate(stops):
            self._add(number, stop)
        self._link()

    def _add(self, number: int, stop: str) -> None:
        state = ROOT
        for length, character in enumerate(stop, 1):
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self.lengths.append(length)
                self._of.append(number)
                self._fallback.append(ROOT)
                self._completed.append(None)
            state = self._next[state][character]
        if self._completed[state] is None:
            self._completed[state] = number

    def _link(self) -> None:
        """Sets the fallbacks, shorter beginnings first, and passes on what is completed at their ends."""
        waiting = deque(self._next[ROOT].values())
        while waiting:
            state = waiting.popleft()
            for character, longer in self._next[state].items():
                waiting.append(longer)
                fallback = self._fallback[longer] = self._step(self._fallback[state], character)
                ends = [
                    end for end in (self._completed[longer], self._completed[fallback]) if end is not None
                ]
                self._completed[longer] = min(ends, default=None)

    def _step(self, state: int, character: str) -> int:
        while state != ROOT and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, ROOT)

    def beginning(self, state: int, n: int) -> str:
        """The first n characters of a state's beginning."""
        return self.stops[self._of[state]][:n]

    def read(self, state: int, text: str) -> tuple[int, int, str | None]:
        """The state after `text`, the number of characters read, and the stop string that ends there."""
        if state == ROOT and self._next[ROOT].keys().isdisjoint(text):
            return ROOT, len(text), None
        for n_read, character in enumerate(text, 1):
            state = self._step(state, character)
            completed = self._completed[state]
            if completed is not None:
                return state, n_read, self.stops[completed]
        return state, len(text), None


class StopStrings:
    """The stop strings of one choice. Holds back text that may be the beginning of a stop string.

    Of two completed at the same character the first listed wins.
    """

    def __init__(self, automaton: StopAutomaton, include: bool) -> None:
        self._automaton = automaton
        self._include = include
        self._state = ROOT  # its beginning is what is held back

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that may be shown now, and the stop string that ends the answer there, or None."""
        automaton, before = self._automaton, self._state
        n_held = automaton.lengths[before]
        self._state, n_read, matched = automaton.read(before, text)
        n_shown = n_held + n_read
        if matched is None:
            n_shown -= automaton.lengths[self._state]
        else:
            self._state = ROOT
            n_shown -= 0 if self._include else len(matched)
        return automaton.beginning(before, min(n_held, n_shown)) + text[: max(n_shown - n_held, 0)], matched

    @property
    def held(self) -> str:
        """What is held back."""
        return self._automaton.beginning(self._state, self._automaton.lengths[self._state])

    def flush(self) -> str:
        """What was held back, when the answer ended for another reason."""
        held, self._state = self.held, ROOT
        return held
