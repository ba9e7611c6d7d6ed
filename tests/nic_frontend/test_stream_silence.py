"""Streams that have nothing to say for long, and what keeps them open: comments, or Anthropic's pings."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from harness import CHAT, Frontend, Speak, wait_until
from limits import WAIT_S
from sse import parse, text_of
from templates import HERMES

from nic_frontend.api import silence
from nic_frontend.api.silence import Silence
from nic_frontend.ring.request import Arrival, Mailbox
from ringbuffer.abi import Phase

COMMENT = ": keep-alive\n\n"
SHORT_S = 0.05

STREAMS = [
    ("/v1/completions", {"prompt": "x"}),
    ("/v1/chat/completions", {"messages": CHAT["messages"]}),
    ("/v1/responses", {"input": "hi"}),
]


@pytest.fixture
def speaker(speak: Speak, monkeypatch: pytest.MonkeyPatch) -> Frontend:
    monkeypatch.setattr(silence, "SILENCE_S", SHORT_S)
    return speak(HERMES, "hello")


def read(
    response: httpx.Response, what: str, times: int, go_on: Callable[[], object], behind: str = ""
) -> str:
    """All that comes; `go_on` is called once `what` has come so many times behind the first of `behind`."""
    text, waits = "", True
    for piece in response.iter_text():
        text += piece
        if waits and (text.partition(behind)[2] if behind else text).count(what) >= times:
            waits = False
            go_on()
    return text


def stream(frontend: Frontend, path: str, body: dict[str, Any], times: int, what: str = COMMENT) -> str:
    """A whole stream whose first token comes when `what` was sent so many times."""
    stalled = frontend.backend.stalled
    stalled.set()
    try:
        with frontend.client.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200
            return read(response, what, times, stalled.clear)
    finally:
        stalled.clear()


@pytest.mark.parametrize(("path", "body"), STREAMS, ids=[path for path, _ in STREAMS])
def test_comments_come_until_the_first_token(speaker: Frontend, path: str, body: dict[str, Any]) -> None:
    text = stream(speaker, path, body, times=3)
    assert COMMENT not in text[text.rindex("data: ") :]  # neither within the last event nor behind it
    events = text.replace(COMMENT, "")
    if path == "/v1/responses":  # whose first events do not wait for a token
        assert text.startswith("event: response.created\n")
        assert '"type":"response.completed"' in events
    else:
        assert text.startswith(COMMENT)
        assert text_of(parse(events)) == "hello"


def test_messages_have_anthropics_pings(speaker: Frontend) -> None:
    ping = 'event: ping\ndata: {"type":"ping"}\n\n'
    body = {"messages": CHAT["messages"], "max_tokens": 9}
    text = stream(speaker, "/v1/messages", body, times=2, what=ping)
    assert COMMENT not in text
    names = re.findall(r"^event: (\w+)$", text, re.MULTILINE)
    assert names[:3] == ["message_start", "ping", "ping"]
    assert names[-1] == "message_stop"


def test_a_pause_amid_an_answer(frontend: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a request is paused for others' pages."""
    monkeypatch.setattr(silence, "SILENCE_S", SHORT_S)
    backend = frontend.backend

    def script(prompt: list[int]) -> Iterator[int]:
        yield 40
        backend.stalled.set()
        yield 41

    backend.script = script
    with frontend.client.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as response:
        text = read(response, COMMENT, 2, backend.stalled.clear, behind="data: ")
    # On a busy machine comments may also come before the first token.
    amid = text[text.index("data: ") : text.rindex("data: ")]
    assert amid.count(COMMENT) >= 2
    assert text.endswith("data: [DONE]\n\n")
    assert len(parse(text.replace(COMMENT, ""))) == 3  # two tokens, and the end


def test_what_speaks_is_not_interrupted(frontend: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENCE_S", 0.2)
    frontend.backend.step_s = 0.02
    body = {"prompt": "x", "max_tokens": 30, "stream": True}

    def is_whole() -> bool:  # on a busy machine the tokens themselves may pause
        text = frontend.client.post("/v1/completions", json=body).text
        assert len(parse(text.replace(COMMENT, ""))) == 30
        return COMMENT not in text

    wait_until(is_whole)


def test_a_failure_behind_comments_is_an_event(speaker: Frontend) -> None:
    stalled = speaker.backend.stalled
    stalled.set()
    body = {"prompt": "x", "stream": True}
    with speaker.client.stream("POST", "/v1/completions", json=body) as response:
        text = read(response, COMMENT, 1, lambda: speaker.backend.set_phase(Phase.STOPPED))
    stalled.clear()
    speaker.backend.set_phase(Phase.SERVING)
    (failure,) = parse(text.replace(COMMENT, ""))
    assert "STOPPED" in failure["error"]["message"]
    wait_until(lambda: speaker.client.get("/health").status_code == 200)


def test_openais_client_passes_over_them(speaker: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    stalled = speaker.backend.stalled
    stalled.set()
    commented: list[Mailbox] = []
    nudge = Mailbox.nudge

    def noted(mailbox: Mailbox) -> None:
        commented.append(mailbox)
        nudge(mailbox)

    monkeypatch.setattr(Mailbox, "nudge", noted)
    with openai.OpenAI(base_url=f"{speaker.url}/v1", api_key="none", timeout=WAIT_S) as client:
        chunks = client.chat.completions.create(model="tiny", messages=CHAT["messages"], stream=True)
        responses = client.responses.create(model="tiny", input="hi", stream=True)
        wait_until(lambda: len(set(commented)) == 2 and min(map(commented.count, commented)) >= 2)
        stalled.clear()
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
        assert [event.type for event in responses][-1] == "response.completed"


def test_a_client_that_leaves_amid_comments_is_cancelled(speaker: Frontend) -> None:
    stalled = speaker.backend.stalled
    stalled.set()
    url = f"{speaker.url}/v1/completions"
    with httpx.stream("POST", url, json={"prompt": "x", "stream": True}, timeout=WAIT_S) as response:
        assert next(response.iter_text()) == COMMENT
    wait_until(lambda: speaker.backend.open_rows() == 0)
    stalled.clear()


def test_no_comment_is_made_for_a_client_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a comment would end its wait, and what waits for it would be counted anew (F6)."""
    monkeypatch.setattr(silence, "SILENCE_S", 0.01)

    async def stall() -> tuple[bool, bool]:
        mailbox = Mailbox(limit=1)
        quiet = Silence(mailbox)
        mailbox.sending = True
        for _ in range(2):
            mailbox.put(Arrival(None, [5], None))  # type: ignore[arg-type]
            await asyncio.sleep(0.05)
        stalled = quiet.is_long, mailbox.overflowing
        quiet.end()
        return stalled

    assert asyncio.run(stall()) == (False, True)


@pytest.mark.alone
@pytest.mark.slow
def test_the_first_comes_after_ten_seconds(speak: Speak) -> None:
    """The least limit that is common among clients is 15 s."""
    frontend = speak(HERMES, "hello")
    frontend.backend.stalled.set()
    began = time.monotonic()
    with frontend.client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as response:
        pieces = response.iter_text()
        assert next(pieces) == COMMENT
        assert 9.9 < time.monotonic() - began < 15
        frontend.backend.stalled.clear()
        assert json.loads("".join(pieces).split("\n")[0].removeprefix("data: "))["choices"]
