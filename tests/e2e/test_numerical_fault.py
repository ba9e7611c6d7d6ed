"""A request whose logits are no numbers, beside others: weights in which one token's embedding is NaN."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from serve_process import ROOT, ServeProcess, complete

BROKEN = 1023  # the token
NAN_BF16 = b"\xc0\x7f"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    directory = tmp_path_factory.mktemp("models") / "broken"
    shutil.copytree(ROOT / "models" / "demo", directory)
    break_embedding(directory / "model.safetensors", BROKEN)
    process = ServeProcess("--threads=1", model=str(directory))
    try:
        yield process.wait_ready()
    finally:
        process.close()


def break_embedding(path: Path, token: int) -> None:
    """Makes the embedding of `token` NaN in a bfloat16 checkpoint."""
    raw = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(raw[:8], "little")
    tensor = json.loads(raw[8:begin])["model.embed_tokens.weight"]
    row = 2 * tensor["shape"][1]
    at = begin + tensor["data_offsets"][0] + token * row
    raw[at : at + row] = NAN_BF16 * tensor["shape"][1]
    path.write_bytes(raw)


@pytest.mark.parametrize("temperature", [0, 1])
def test_it_ends_with_an_error_of_its_own_and_others_go_on(server: ServeProcess, temperature: float) -> None:
    whole = complete(server.client, "Count from 1 to 50.", max_tokens=400)
    others: list[str] = []
    thread = threading.Thread(
        target=lambda: others.append(complete(server.client, "Count from 1 to 50.", max_tokens=400))
    )
    thread.start()
    body = {"prompt": [5, BROKEN, 7], "max_tokens": 8, "min_tokens": 4, "temperature": temperature}
    for _ in range(5):
        response = server.client.post("/v1/completions", json=body)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "numerical_fault"
        assert response.json()["error"]["type"] == "server_error"
    thread.join()
    assert others == [whole]  # also in pages that held NaN
    assert complete(server.client, "Count from 1 to 50.", max_tokens=400) == whole


def test_a_stream_says_so_in_an_event(server: ServeProcess) -> None:
    body = {"prompt": [5, BROKEN], "max_tokens": 8, "stream": True}
    response = server.client.post("/v1/completions", json=body)
    assert response.status_code == 200
    event, done = response.text.strip().split("\n\n")
    assert json.loads(event.removeprefix("data: "))["error"]["code"] == "numerical_fault"
    assert done == "data: [DONE]"
