"""Reads a server-sent event stream the way a strict client does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a whole response; checks the framing and that [DONE] comes last."""
    assert response.headers["content-type"].startswith("text/event-stream")
    return parse(response.text)


def parse(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n\n")
    frames = text[:-2].split("\n\n")
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames), frames
    assert frames[-1] == "data: [DONE]"
    return [json.loads(frame[6:]) for frame in frames[:-1]]


def text_of(chunks: Iterable[dict[str, Any]], index: int = 0) -> str:
    """The text of one choice, of either kind of stream."""
    parts = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                parts.append(choice["delta"].get("content", "") if "delta" in choice else choice["text"])
    return "".join(parts)


def finish_reasons(chunks: Iterable[dict[str, Any]]) -> dict[int, str]:
    return {
        choice["index"]: choice["finish_reason"]
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["finish_reason"] is not None
    }
