"""No request holds the event loop up (F10): bodies as large as they may be, all of whose lists, maps, texts
and levels are at their limits, and the longest answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fixtures import ring_of_its_own
from fuzz.large_shapes import (
    CHAT,
    COMPLETIONS,
    LISTS,
    MAPS,
    NESTED,
    PIECES,
    RESPONSES,
    SIZE,
    TEXTS,
    USER,
    Place,
    listed,
    nested,
    text,
    within,
)
from harness import Frontend
from known_work import LONGEST_S
from limits import WAIT_S
from mock_backend import MockBackend
from templates import HERMES, write_model_with
from turns import Turns

from nic_frontend.api.conversation import MOST_READ
from nic_frontend.http.json_text import MOST_DEPTH
from nic_frontend.ring import backend_monitor
from nic_frontend.service import Service

pytestmark = pytest.mark.slow


def at_limits(place: Place) -> dict[str, bytes]:
    """Bodies that have as much as may be: by their size, and by the limit that is reached first."""
    most = place.most()
    first = min(most, key=lambda name: most[name])
    return {name: place.body(most[name]) for name in dict.fromkeys(("size", first))}


PLACES = {
    **LISTS,
    **MAPS,
    "numbers in arguments of a call": NESTED["arguments"](within('{"a":', listed("7.5"), "}")),
}
CASES: dict[str, tuple[Place, int | None]] = {name: (place, None) for name, place in PLACES.items()}
CASES["numbers that arguments may have"] = (PLACES["numbers in arguments of a call"], MOST_READ)
CASES["very many unknown fields"] = (MAPS["unknown fields"], 350_000)
CASES |= {
    f"{kind} of {name}": (place(text(piece)), None)
    for name, piece in PIECES.items()
    for kind, place in TEXTS.items()
}
CASES |= {
    f"{depth} levels of {name}": (place(nested()), depth)
    for depth in (MOST_DEPTH - 10, 300, 900, 100_000)
    for name, place in NESTED.items()
}


@pytest.fixture(scope="module")
def turns() -> Turns:
    return Turns()


@pytest.fixture(scope="module")
def large(turns: Turns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontend]:
    """A frontend of a model with tools, and with a context in which all of this fits."""
    directory = write_model_with(tmp_path_factory.mktemp("model"), HERMES)
    backend = MockBackend(
        ring_of_its_own(),
        directory,
        max_context=2 << 20,
        n_slots=128,
        prompt_heap=4 << 20,
        output_heap=1 << 20,
        step_s=0.001,
        device="cpu",  # whose heartbeat may stand still: this one takes its time with long prompts
    ).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Service, "start", lambda service: turns.start(service))
        patch.setattr(backend_monitor, "EMULATION_PATIENCE_NS", int(1e9 * WAIT_S))
        frontend = Frontend(backend, directory, max_body_bytes=SIZE + (1 << 20), body_memory_bytes=1 << 30)
        yield frontend
        frontend.stop()
    backend.stop()


@pytest.mark.parametrize("name", CASES)
def test_a_body_at_its_limits(large: Frontend, turns: Turns, name: str) -> None:
    place, n = CASES[name]
    bodies = at_limits(place) if n is None else {str(n): place.body(n)}
    for limit, body in bodies.items():

        def ask(body: bytes = body) -> None:
            headers = {"content-type": "application/json"}
            response = large.client.post(place.path, content=body, headers=headers)
            assert response.status_code < 500, response.text[:300]

        assert turns.least(ask) < LONGEST_S, limit


def test_a_prompt_of_a_context_of_a_million(large: Frontend) -> None:
    """Beside all that a request may say of its answer."""
    others = {"logit_bias": dict.fromkeys(map(str, range(500)), 1), "temperature": 0.5, "seed": 1}
    body = {"prompt": [7] * (1 << 20), "max_tokens": 1, **others}
    response = large.client.post(COMPLETIONS + "/render", json=body)
    assert response.status_code == 200, response.text[:300]
    (rendered,) = response.json()
    assert rendered["token_ids"] == body["prompt"]


COMPLETION = {"prompt": [7] * 4000, "max_tokens": 1, "logprobs": 0}
TOP = {"logprobs": True, "top_logprobs": 20}
INCLUDE = {"include": ["message.output_text.logprobs"]}
LONG = {"max_tokens": 60, "ignore_eos": True}
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": [USER], **LONG, **TOP, "n": 128}),
    "completion": (COMPLETIONS, {"prompt": "x", **LONG, "logprobs": 20, "n": 128}),
    "response": (RESPONSES, {"input": "x", "max_output_tokens": 3000, "top_logprobs": 20, **INCLUDE}),
    "tools": (CHAT, {"messages": [USER], **LONG, **TOP, "n": 128, "tools": [{"function": {"name": "f"}}]}),
    "echo": (COMPLETIONS, {**COMPLETION, "echo": True, "logprobs": 20}),
    "echo of many": (COMPLETIONS, {**COMPLETION, "prompt": [7] * 40_000, "echo": True}),
    "prompt": (COMPLETIONS, {**COMPLETION, "prompt_logprobs": 20}),
    "ids": (COMPLETIONS, {**COMPLETION, "n": 128, "return_token_ids": True}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "stream"),
    [(name, stream) for name in ANSWERS for stream in (False, True) if not (stream and name == "prompt")],
)
def test_a_long_answer(large: Frontend, turns: Turns, name: str, stream: bool) -> None:
    path, body = ANSWERS[name]

    def ask() -> None:
        with large.client.stream("POST", path, json={**body, "stream": stream}) as response:
            assert response.status_code == 200
            assert any(response.iter_bytes())

    assert turns.least(ask) < LONGEST_S
