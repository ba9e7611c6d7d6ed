"""A renderer whose process ends, fails or hangs: which request pays for it, and what is started again."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from limits import WAIT_S
from renderers import ECHO, user
from waiting import wait_until

from nic_frontend.errors import ApiError
from nic_frontend.processes.channel import has_ended
from nic_frontend.processes.frames import framed
from nic_frontend.templates.chat_template import ChatTemplate, TemplateSource
from nic_frontend.templates.process import ERROR, TEXT
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.templates.renderer import FORMS_BYTES, Bounds


def played(monkeypatch: pytest.MonkeyPatch, *what: str) -> list[int]:
    """The renderer's processes are scripts: what the first does with its socket, the second and so on.

    Returns a list of which there is an item for each that was started.
    """
    head = "import sys, time, socket; s = socket.socket(fileno=int(sys.argv[1])); "
    started: list[int] = []

    def command(module: str, *arguments: object) -> list[str]:
        started.append(len(started))
        return [sys.executable, "-S", "-c", head + what[started[-1]], *map(str, arguments)]

    monkeypatch.setattr("nic_frontend.templates.renderer.command", command)
    return started


def after_connecting(monkeypatch: pytest.MonkeyPatch, then: Callable[[], Awaitable[None]]) -> None:
    """Whoever connects in the running loop goes on when `then` has been done."""
    loop = asyncio.get_running_loop()
    connect = loop.create_unix_connection

    async def slowly(*arguments: Any, **options: Any) -> Any:
        connected = await connect(*arguments, **options)
        await then()
        return connected

    monkeypatch.setattr(loop, "create_unix_connection", slowly)


PATIENT = Bounds(time_s=WAIT_S, memory_bytes=1 << 28, most_text=1 << 16)
FORMS = msgspec.json.encode(ChatTemplate(TemplateSource(ECHO, {})).forms)
CAN_RENDER = f"s.sendall({framed(TEXT + FORMS)!r}); "


def renders(times: int = 1) -> str:
    return CAN_RENDER + f"s.recv(1 << 16); s.sendall({times} * {framed(TEXT + b'yes')!r}); s.recv(1)"


@pytest.mark.parametrize(
    "stays",
    [
        f"s.sendall({framed(ERROR + b'no')!r}); time.sleep(1000)",
        f"s.sendall({framed(TEXT + FORMS[:-9])!r}); time.sleep(1000)",
        f"s.sendall({framed(TEXT + b'[]')!r}); time.sleep(1000)",
        f"s.sendall({framed(b' ' * (FORMS_BYTES + 1))[:8]!r}); time.sleep(1000)",
        "[(s.send(b'\\0'), time.sleep(0.05)) for _ in range(20_000)]",
    ],
)
def test_a_process_that_cannot_render_and_does_not_end_is_killed(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch, stays: str
) -> None:
    monkeypatch.setattr("nic_frontend.templates.renderer.START_S", 0.3)
    played(monkeypatch, stays)
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"no$|more than 0.3 s|makes no sense|bytes, where"):
        start_renderer(ECHO)
    assert time.monotonic() - began < WAIT_S


@pytest.mark.parametrize("connecting_s", [0.0, 0.1])
def test_no_request_is_blamed_for_a_process_that_ended_before_it_was_asked(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch, connecting_s: float
) -> None:
    started = played(monkeypatch, CAN_RENDER + "s.close(); time.sleep(60)", renders(times=2))
    renderer = start_renderer(ECHO, PATIENT)

    async def two() -> None:
        after_connecting(monkeypatch, lambda: asyncio.sleep(connecting_s))
        asked = [asyncio.create_task(renderer.render(user("x"), PromptEnd.ANSWER, {})) for _ in range(2)]
        assert await asyncio.wait_for(asyncio.gather(*asked), WAIT_S) == ["yes", "yes"]

    wait_until(lambda: has_ended(renderer._socket))
    asyncio.run(two())
    assert len(started) == 2


def test_no_request_is_blamed_for_a_process_that_ended_between_two(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = played(monkeypatch, renders(), renders())
    renderer = start_renderer(ECHO, PATIENT)

    async def story() -> None:
        for _ in range(2):
            assert await asyncio.wait_for(renderer.render(user("x"), PromptEnd.ANSWER, {}), WAIT_S) == "yes"
            renderer._process.kill()  # the event loop has not heard of it when it is asked again
            renderer._process.wait()

    asyncio.run(story())
    assert len(started) == 2


def test_processes_that_end_before_they_are_asked_are_not_started_for_ever(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = played(monkeypatch, *[CAN_RENDER] * 3)
    renderer = start_renderer(ECHO, PATIENT)

    async def ended() -> None:
        renderer._process.wait()

    async def story() -> None:
        after_connecting(monkeypatch, ended)
        with pytest.raises(ApiError) as caught:
            await asyncio.wait_for(renderer.render(user("x"), PromptEnd.ANSWER, {}), WAIT_S)
        assert caught.value.status == 500

    asyncio.run(story())
    assert len(started) in (2, 3)  # the first may have been gone before


def test_a_connection_that_fails_costs_its_requests_alone(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(monkeypatch, CAN_RENDER + "s.recv(1)", renders())
    renderer = start_renderer(ECHO, PATIENT)

    async def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no more files")

    async def both() -> None:
        failed = renderer._socket
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "create_unix_connection", refuse)
            with pytest.raises(ApiError) as caught:
                await renderer.render(user("x"), PromptEnd.ANSWER, {})
        assert caught.value.status == 500
        assert failed.fileno() == -1
        assert await renderer.render(user("x"), PromptEnd.ANSWER, {}) == "yes"

    asyncio.run(both())
