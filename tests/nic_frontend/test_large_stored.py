"""Storing a response holds nobody up, and neither does what it continues, however large both are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fixtures import ring_of_its_own
from fuzz.large_shapes import LISTS, PIECES, RESPONSES, SIZE, Place, text, within
from harness import Frontend
from known_work import LONGEST_S
from limits import WAIT_S
from mock_backend import MockBackend
from scripted_answers import say
from templates import HERMES, write_model_with
from turns import Turns

from nic_frontend.ring import backend_monitor
from nic_frontend.service import Service

pytestmark = pytest.mark.slow

VALUES = '{"role":"user","content":"x","more":[' + ",".join(["7"] * 100) + "]}"
CASES = {
    "items": LISTS["items"],
    "calls and results": LISTS["calls and results as items"],
    "values in items": Place(RESPONSES, "input", within("[", lambda n: ",".join([VALUES] * n), "]")),
    **{
        f"{name} of an item": Place(
            RESPONSES, "input", within('[{"role":"user","content":"x","more":', text(piece), "}]")
        )
        for name, piece in PIECES.items()
        if name != "surrogates"  # which no body in UTF-8 has
    },
}


@pytest.fixture(scope="module")
def turns() -> Turns:
    return Turns()


@pytest.fixture(scope="module")
def storing(turns: Turns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontend]:
    directory = write_model_with(tmp_path_factory.mktemp("model"), HERMES)
    backend = MockBackend(
        ring_of_its_own(), directory, max_context=2 << 20, n_slots=16, prompt_heap=4 << 20,
        output_heap=1 << 20, device="cpu",
    ).start()  # fmt: skip
    backend.script = say([7, 8, 9])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Service, "start", lambda service: turns.start(service))
        patch.setattr(backend_monitor, "EMULATION_PATIENCE_NS", int(1e9 * WAIT_S))
        frontend = Frontend(
            backend, directory, max_body_bytes=SIZE + (1 << 20), body_memory_bytes=1 << 30,
            store_responses=tmp_path_factory.mktemp("store") / "responses",
        )  # fmt: skip
        yield frontend
        frontend.stop()
    backend.stop()


@pytest.mark.parametrize("name", CASES)
def test_a_large_response_is_stored_and_continued(storing: Frontend, turns: Turns, name: str) -> None:
    place = CASES[name]
    most = place.most()
    body = place.body(min(most.values()) * 9 // 10)
    headers = {"content-type": "application/json"}
    told: dict[str, Any] = {}

    def ask() -> None:
        response = storing.client.post(RESPONSES, content=body, headers=headers)
        assert response.status_code == 200, response.text[:300]
        told.update(response.json())

    def go_on() -> None:
        more = {"input": "x", "previous_response_id": told["id"], "max_output_tokens": 1}
        response = storing.client.post(RESPONSES, content=json.dumps(more), headers=headers)
        assert response.status_code in (200, 400), response.text[:300]

    def find() -> None:
        assert storing.client.get(f"{RESPONSES}/{told['id']}").status_code == 200

    for work in (ask, go_on, find):
        assert turns.least(work) < LONGEST_S, work.__name__
