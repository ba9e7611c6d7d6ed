"""Chat templates in a process of their own: what they cannot do to the frontend, and to other chats."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import CHAT, Speak, StartBackend, error_of, wait_until
from known_work import slowness
from limits import WAIT_S
from own_time import own_s
from renderers import BOUNDS, ECHO, user
from templates import HERMES

from nic_frontend.errors import ApiError
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.templates.renderer import Bounds, Renderer, open_renderer

# A hostile one waits until it is asked: else it would not be served at all.
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"  # noqa: E501


def trapped(what: str) -> str:
    return "{% if messages[0].content == 'go' %}" + what + "{% else %}" + ECHO + "{% endif %}"


PATIENT = replace(BOUNDS, time_s=WAIT_S)


def hurry(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives "go" the time of BOUNDS, and all others as much as they need: a busy machine may keep the process
    of either waiting."""
    watch = renderer._watch_oldest

    def watch_oldest() -> None:
        is_hostile = bool(renderer._waiting) and b"go" in renderer._waiting[0].payload
        monkeypatch.setattr(renderer, "_bounds", BOUNDS if is_hostile else PATIENT)
        watch()

    monkeypatch.setattr(renderer, "_watch_oldest", watch_oldest)


def test_its_process_loads_no_more_than_it_needs() -> None:
    """Each frontend has one: numpy alone would double the time in which it starts."""
    loaded = "import sys, nic_frontend.templates.process; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False, timeout=WAIT_S).returncode == 0


def test_chats_are_rendered_each_with_its_own_text(start_renderer: Any) -> None:
    renderer = start_renderer(ECHO, PATIENT)

    async def all_at_once() -> list[str]:
        texts = [f"{i} é漢😀" + "x" * i for i in range(200)]
        found = await asyncio.gather(*(renderer.render(user(text), PromptEnd.ANSWER, {}) for text in texts))
        assert found == [f"<user>{text}" for text in texts]
        return found

    assert len(asyncio.run(all_at_once())) == 200


def test_lone_surrogates_are_refused(start_renderer: Any) -> None:
    with pytest.raises(ApiError, match="lone surrogate") as refused:
        asyncio.run(start_renderer(ECHO, PATIENT).render(user("a\ud800b"), PromptEnd.ANSWER, {}))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("trap", "message"),
    [
        (ENDLESS, "takes more than 0.5 s"),
        ("{{ (3 ** (messages | length * 3 * 10 ** 7)) % 7 }}", "takes more than 0.5 s"),
        ("{{ 'x' * 10 ** 9 }}", "too much memory"),
        ("{{ 'x' | center(10 ** 9) }}", "too much memory"),
        ("{{ '%1000000000d' % 1 }}", "too much memory"),
        ("{{ [0] * 10 ** 9 }}", "too much memory"),
        (
            "{% set n = namespace(s='x') %}{% for i in range(50) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            "too much memory",
        ),
        ("{% for i in range(99999) %}xx{% endfor %}", "more than 65536 characters"),
        ("{{ 'x' * 99999 }}", "more than 65536 characters"),
        ("{{ raise_exception('no\n' * 10 ** 6) }}", "refuses these messages: no"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_what_takes_too_much_is_refused_and_others_are_rendered(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch, trap: str, message: str
) -> None:
    # On a busy machine memory fills up slowly, and is what is to be missed first.
    renderer = start_renderer(trapped(trap), PATIENT)
    if "takes more" in message:
        hurry(renderer, monkeypatch)

    async def beside_others() -> None:
        before = asyncio.create_task(renderer.render(user("before"), PromptEnd.ANSWER, {}))
        hostile = asyncio.create_task(renderer.render(user("go"), PromptEnd.ANSWER, {}))
        after = [
            asyncio.create_task(renderer.render(user(f"after {i}"), PromptEnd.ANSWER, {})) for i in range(20)
        ]
        assert await before == "<user>before"
        with pytest.raises(ApiError, match=message) as caught:
            await hostile
        assert caught.value.status == 400
        assert len(str(caught.value)) < 2000
        assert await asyncio.gather(*after) == [f"<user>after {i}" for i in range(20)]
        assert await renderer.render(user("later"), PromptEnd.ANSWER, {}) == "<user>later"

    asyncio.run(beside_others())


def test_the_event_loop_turns_while_a_template_does_not_end(start_renderer: Any) -> None:
    renderer = start_renderer(trapped(ENDLESS))

    async def turns() -> None:
        hostile = asyncio.create_task(renderer.render(user("go"), PromptEnd.ANSWER, {}))
        longest, last = 0.0, own_s()
        while not hostile.done():
            await asyncio.sleep(0.005)
            now = own_s()
            longest, last = max(longest, now - last), now
        assert longest < 0.4 * slowness()
        with pytest.raises(ApiError):
            await hostile

    asyncio.run(turns())


@pytest.mark.parametrize(
    "template",
    ["{% for %}", ENDLESS, "x" * (17 << 20)],
)
def test_a_template_that_cannot_be_used_is_refused_at_the_start(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    monkeypatch.setattr("nic_frontend.templates.renderer.START_S", 1.5)
    with pytest.raises(ValueError, match="template") as caught:
        start_renderer(template)
    assert "\n" not in str(caught.value)


def test_the_process_ends_by_itself_when_nobody_waits_for_its_rendering(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frontend was killed: nobody is left who would kill it."""
    renderer = start_renderer(trapped(ENDLESS), Bounds(time_s=0.2, memory_bytes=1 << 30, most_text=1 << 16))
    monkeypatch.setattr(renderer, "_watch_oldest", lambda: None)

    async def abandon() -> None:
        hostile = asyncio.create_task(renderer.render(user("go"), PromptEnd.ANSWER, {}))
        while renderer._channel is None:
            await asyncio.sleep(0.001)
        hostile.cancel()

    asyncio.run(asyncio.wait_for(abandon(), WAIT_S))
    assert renderer._process.wait(WAIT_S) == -signal.SIGALRM


def test_the_process_has_no_secrets_and_writes_nothing(
    start_renderer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLINK_API_KEY", "secret")
    process = start_renderer(ECHO)._process
    assert b"secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    assert resource.prlimit(process.pid, resource.RLIMIT_FSIZE) == (0, 0)
    assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
    assert "NoNewPrivs:\t1" in Path(f"/proc/{process.pid}/status").read_text()


def test_a_server_answers_others_while_a_template_does_not_end(speak: Speak) -> None:
    frontend = speak(trapped(ENDLESS), "yes", template_timeout_s=0.5)
    hostile = {**CHAT, "messages": user("go")}
    assert (
        "takes more than 0.5 s"
        in error_of(frontend.client.post("/v1/chat/completions", json=hostile), 400)["message"]
    )
    # Others have half a second, too, which a busy machine may take from one or the other.
    for _ in range(3):
        wait_until(lambda: frontend.client.post("/v1/chat/completions", json=CHAT).status_code == 200)


def test_tools_go_through_the_process(speak: Speak) -> None:
    frontend = speak(HERMES, "yes")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    response = frontend.client.post("/v1/chat/completions", json={**CHAT, "tools": [tool]})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("depth", [300, 900, 5000])
def test_what_nests_deeply_is_rendered_or_refused(start_renderer: Any, depth: int) -> None:
    """Arguments of calls and parameters of tools nest as clients like."""
    renderer = start_renderer(HERMES, PATIENT)
    nested: dict[str, Any] = {}
    for _ in range(depth):
        nested = {"a": nested}
    tool = {"type": "function", "function": {"name": "f", "parameters": nested}}

    async def ask() -> None:
        with contextlib.suppress(ApiError):
            assert '"a": {"a": ' in await renderer.render(user("x"), PromptEnd.ANSWER, {}, [tool])
        assert "x" in await renderer.render(user("x"), PromptEnd.ANSWER, {})

    asyncio.run(ask())


def test_a_model_without_a_template_has_no_process(tmp_path: Path, start_backend: StartBackend) -> None:
    assert open_renderer(tmp_path, BOUNDS) is None
