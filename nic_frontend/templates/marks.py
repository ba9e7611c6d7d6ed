"""The marks that models write around what they think."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Marks:
    """Around what a model thinks."""

    opening: str
    closing: str
    opened: bool = False  # the model leaves the opening mark out

    @property
    def conclusion(self) -> str:
        """What ends the thoughts of a model that is made to."""
        return f"\n{self.closing}\n\n"


REASONING_PARSERS: dict[str, Marks] = {
    "think": Marks("<think>", "</think>"),  # Qwen3, DeepSeek-R1, Phi-4-reasoning
    "deepseek_r1": Marks("<think>", "</think>", opened=True),
    "magistral": Marks("[THINK]", "[/THINK]"),
}
