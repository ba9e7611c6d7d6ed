"""A bar of how many prompts are answered, and how fast, as vLLM shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from blink.llm.outputs import RequestOutput

Bar = Callable[..., Any]  # makes what has the methods of a tqdm
Advance = Callable[[RequestOutput | None], None]  # None: a prompt that was not answered


@contextmanager
def progress(total: int, use_tqdm: bool | Bar) -> Iterator[Advance]:
    """`use_tqdm`: whether a bar is shown, or what makes it."""
    if not use_tqdm:
        yield lambda output: None
        return
    if callable(use_tqdm):
        make = use_tqdm
    else:
        from tqdm.auto import tqdm  # not at the top: it looks whether this is a notebook

        make = tqdm
    bar = make(total=total, desc="Processed prompts", dynamic_ncols=True, postfix=_speed(0, 0, 0))
    read = written = 0

    def advance(output: RequestOutput | None) -> None:
        nonlocal read, written
        if output is not None:
            read += len(output.prompt_token_ids)
            written += sum(len(choice.token_ids) for choice in output.outputs)
            bar.postfix = _speed(read, written, bar.format_dict["elapsed"])
        bar.update(1)

    try:
        yield advance
    finally:
        bar.close()


def _speed(read: int, written: int, seconds: float) -> str:
    rates = [n / seconds if seconds else 0.0 for n in (read, written)]
    return f"est. speed input: {rates[0]:.2f} toks/s, output: {rates[1]:.2f} toks/s"
