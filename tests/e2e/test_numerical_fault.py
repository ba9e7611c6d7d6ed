"""A request whose logits are no numbers, beside others: finite weights with which one token overflows."""

from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from serve_process import ROOT, ServeProcess, complete

BROKEN = 1023  # the token
HUNDRED_BF16 = 0x42C8
LARGEST_BF16 = 0x7F7F


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    directory = tmp_path_factory.mktemp("models") / "broken"
    shutil.copytree(ROOT / "models" / "demo", directory)
    overflow(directory / "model.safetensors", BROKEN)
    process = ServeProcess("--threads=1", model=str(directory))
    try:
        yield process.wait_ready()
    finally:
        process.close()


def overflow(path: Path, token: int) -> None:
    """Makes all that is computed of `token` overflow, in a bfloat16 checkpoint whose weights are finite.

    The first norm multiplies dimension 0 of a token by the largest number there is. Only `token` has anything
    there: no other embedding, and no layer, which is what their outputs are added to.
    """
    raw = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(raw[:8], "little")

    def rows_of(name: str, info: dict[str, Any]) -> NDArray[np.uint16]:
        flat = np.frombuffer(raw, "<u2", math.prod(info["shape"]), begin + info["data_offsets"][0])
        return flat.reshape(info["shape"])

    header = json.loads(raw[8:begin])
    tensors = {name: rows_of(name, info) for name, info in header.items() if name != "__metadata__"}
    for name, rows in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            rows[0] = 0
    tensors["model.embed_tokens.weight"][:, 0] = 0
    tensors["model.embed_tokens.weight"][token, 0] = HUNDRED_BF16
    tensors["model.layers.0.input_layernorm.weight"][0] = LARGEST_BF16
    path.write_bytes(raw)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.slow
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


@pytest.mark.slow
def test_a_stream_says_so_in_an_event(server: ServeProcess) -> None:
    body = {"prompt": [5, BROKEN], "max_tokens": 8, "stream": True}
    response = server.client.post("/v1/completions", json=body)
    assert response.status_code == 200
    event, done = response.text.strip().split("\n\n")
    assert json.loads(event.removeprefix("data: "))["error"]["code"] == "numerical_fault"
    assert done == "data: [DONE]"
