"""The parts of one choice's answer in their order: what was thought, said and called."""

from __future__ import annotations

from dataclasses import dataclass, field

from nic_frontend.parsing.delta import CallArguments, CallStart, Delta


@dataclass(eq=False)
class Part:
    """`index` is its place. `kind` is Text, Reasoning or CallStart; a call's pieces are its arguments."""

    index: int
    kind: type[Delta]
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Parts:
    def __init__(self) -> None:
        self.listed: list[Part] = []

    def add(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, CallStart):
                self.listed.append(Part(len(self.listed), CallStart, delta.id, delta.name))
            elif isinstance(delta, CallArguments):
                self.listed[-1].pieces.append(delta.text)
            else:
                self._part(type(delta)).pieces.append(delta.text)

    def _part(self, kind: type[Delta]) -> Part:
        """The last part if it is of this kind, or a new one."""
        if not self.listed or self.listed[-1].kind is not kind:
            self.listed.append(Part(len(self.listed), kind))
        return self.listed[-1]

    def text(self, kind: type[Delta]) -> str:
        """All text of a kind."""
        return "".join(part.text for part in self.listed if part.kind is kind)

    @property
    def calls(self) -> list[Part]:
        return [part for part in self.listed if part.kind is CallStart]
