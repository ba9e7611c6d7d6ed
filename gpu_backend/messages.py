"""What the backend says on its standard error."""

from __future__ import annotations

from ringbuffer import messages


def say(text: str) -> None:
    messages.say("blink backend", text)
