"""Right answers from real weights, through every layer: one after the other, many at once, long and short."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import openai
import pytest
from demo_client import ask, chat, completion, items, right
from fourbit_checkpoint import FOUR_BITS, pack_files
from limits import WAIT_S
from serve_process import ROOT, Serve, ServeProcess, complete
from sse import events, text_of

TASKS = (
    "add", "subtract", "multiply", "count", "table", "sort_numbers", "sort_words", "reverse", "spell", "copy",
    "unicode", "repeat", "fact", "identity", "lookup", "story", "memory",
)  # fmt: skip
EACH = 6
SHARE = 0.95  # models/demo/evaluation.json: no task has less


@pytest.mark.slow
def test_every_task_over_both_endpoints(server: ServeProcess) -> None:
    chosen = [item for task in TASKS for item in items(task, EACH)]
    for style in (completion, chat):
        judged = right(chosen, ask(server.url, [style(item) for item in chosen], clients=16))
        assert sum(judged) >= SHARE * len(chosen), [
            item.prompt for item, ok in zip(chosen, judged, strict=True) if not ok
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "flag", ["--quantization=fp8", "--quantization=int4", "--quantization=mxfp4", "--kv-cache-dtype=fp8"]
)
def test_a_rounded_model_answers_as_well(serve: Serve, flag: str) -> None:
    process = serve(flag)
    chosen = [item for task in TASKS for item in items(task, 3)]
    judged = right(chosen, ask(process.url, [completion(item) for item in chosen], clients=16))
    assert sum(judged) >= SHARE * len(chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "name"), [("awq", "int4"), ("mxfp4-packed", "fp4")])
def test_a_checkpoint_in_four_bits_answers_as_well(layout: str, name: str, tmp_path: Path) -> None:
    """Rounded without any of the care that AWQ and GPTQ are about."""
    directory = Path(shutil.copytree(ROOT / "models/demo", tmp_path / "demo"))
    pack_files(directory, FOUR_BITS[layout])
    process = ServeProcess(model=str(directory))
    try:
        chosen = [item for task in TASKS for item in items(task, 3)]
        url = process.wait_ready().url
        judged = right(chosen, ask(url, [completion(item) for item in chosen], clients=16))
        assert sum(judged) >= SHARE * len(chosen)
        assert f"with weights in {name} (by groups of 32)" in process.output
    finally:
        process.close()


@pytest.mark.slow
def test_64_concurrent_streams(server: ServeProcess) -> None:
    chosen = [item for task in ("add", "count", "sort_words", "unicode") for item in items(task, 32, seed=8)]
    streamed = ask(server.url, [chat(item, stream=True) for item in chosen], clients=64)
    alone = ask(server.url, [chat(item) for item in chosen], clients=1)
    assert sum(right(chosen, streamed)) >= SHARE * len(chosen)
    assert [(r.text, r.finish_reason, r.tokens) for r in streamed] == [
        (r.text, r.finish_reason, r.tokens) for r in alone
    ]
    assert max(reply.pieces for reply in streamed) > 50


@pytest.mark.slow
def test_an_answer_of_more_than_1000_tokens(server: ServeProcess) -> None:
    """Many launch windows of 120 steps, and more than seven pages of records."""
    item = max(items("count_long", 20), key=lambda item: len(item.answer))
    reply = ask(server.url, [completion(item, max_tokens=1900, stream=True)])[0]
    assert reply.tokens > 1000
    assert reply.finish_reason == "stop"
    assert right([item], [reply]) == [True]


@pytest.fixture(scope="module")
def client(server: ServeProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=WAIT_S)


def test_the_openai_client_streams_a_chat(client: openai.OpenAI) -> None:
    (item,) = items("count", 1)
    chunks = list(
        client.chat.completions.create(
            model="demo", messages=item.messages, temperature=0, stream=True,  # type: ignore[arg-type]
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == item.answer
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == len(chunks) - 3 + 1  # role, end, usage; the end token counts


def test_the_openai_client_streams_a_completion(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="demo", prompt="12 + 30 =", temperature=0, max_tokens=5, stream=True
    )
    assert "".join(choice.text for chunk in stream for choice in chunk.choices).strip() == "42"


@pytest.mark.slow
def test_a_stream_samples_as_the_model_recommends(server: ServeProcess, tmp_path: Path) -> None:
    """A penalty on repetition spoils counting, so its effect is seen in greedy answers."""
    directory = Path(shutil.copytree(ROOT / "models/demo", tmp_path / "demo"))
    file = directory / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "temperature": 0, "repetition_penalty": 5}))
    body: dict[str, Any] = {"prompt": "Count from 1 to 30.", "max_tokens": 60}
    plain, penalized = (complete(server.client, **body, repetition_penalty=value) for value in (1, 5))
    assert plain != penalized
    process = ServeProcess(model=str(directory))
    try:
        client = process.wait_ready().client
        streams = [{**body, "stream": True}, {**body, "stream": True, "repetition_penalty": 1}]
        texts = [text_of(events(client.post("/v1/completions", json=asked))) for asked in streams]
        assert texts == [penalized, plain]
        assert "temperature 0, repetition_penalty 5" in process.output
    finally:
        process.close()


def test_several_choices_and_prompts_in_one_request(server: ServeProcess) -> None:
    body = {"prompt": ["2 + 3 =", "20 + 30 ="], "n": 2, "temperature": 0, "max_tokens": 4}
    choices = server.client.post("/v1/completions", json=body).json()["choices"]
    assert [choice["text"].strip() for choice in choices] == ["5", "5", "50", "50"]


def test_a_stop_string_and_a_token_limit(server: ServeProcess) -> None:
    body = {"prompt": "Count from 1 to 30.", "temperature": 0, "max_tokens": 200}
    stopped = server.client.post("/v1/completions", json={**body, "stop": ", 12"}).json()["choices"][0]
    assert stopped["text"].strip() == ", ".join(map(str, range(1, 12)))
    assert stopped["finish_reason"] == "stop"
    cut = server.client.post("/v1/completions", json={**body, "max_tokens": 7}).json()
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 7
