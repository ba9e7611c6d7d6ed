"""SmolLM2-135M-Instruct, served by its name on the CPU emulation, beside transformers in fp32."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from limits import WAIT_S
from numpy.typing import NDArray
from real_model import (
    ANSWER_TOKENS,
    QUESTIONS,
    TEXTS,
    Reference,
    RoundedReference,
    made_directory,
    measure,
    perplexity,
)
from serve_process import ServeProcess

from gpu_backend.models.quantization import ROUNDINGS

pytestmark = pytest.mark.slow

# Both compute in fp32, in another order: logits, which are about 20, and log-probabilities differ by less
# than 1e-4. A token that transformers likes less than another by no more than this is a tie.
TIE = 1e-3
FEW = 400  # tokens of a text, of a rounded model: what the rounding costs shows in these as well
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def directory() -> Path:
    return made_directory()


@pytest.fixture(scope="module")
def reference(directory: Path) -> Reference:
    return Reference(directory)


@pytest.fixture(scope="module")
def exact(reference: Reference) -> dict[str, NDArray[np.float64]]:
    """The scores of TEXTS."""
    return {name: reference.scores(reference.text(name)) for name in TEXTS}


@pytest.fixture(scope="module")
def client(directory: Path) -> Iterator[httpx.Client]:
    process = ServeProcess(model="smollm2")
    try:
        yield process.wait_ready().client
    finally:
        process.close()


def chat(client: httpx.Client, question: str, **fields: Any) -> dict[str, Any]:
    """A greedy answer."""
    messages = [{"role": "user", "content": question}]
    body = {"messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS, **fields}
    response = client.post("/v1/chat/completions", json=body, timeout=5 * WAIT_S)
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_greedy_answers_are_those_of_transformers(client: httpx.Client, reference: Reference) -> None:
    with ThreadPoolExecutor(len(QUESTIONS)) as clients:
        replies = [*clients.map(lambda question: chat(client, question, return_token_ids=True), QUESTIONS)]
    answers = [reply["choices"][0]["token_ids"] for reply in replies]
    for question, reply, answer in zip(QUESTIONS, replies, answers, strict=True):
        choice, prompt = reply["choices"][0], reference.prompt(question)
        assert reply["prompt_token_ids"] == prompt
        assert reference.regrets(prompt, answer).max() <= TIE, question
        ended = answer[-1] == reference.tokenizer.eos_token_id
        assert choice["finish_reason"] == ("stop" if ended else "length")
        assert ended or len(answer) == ANSWER_TOKENS
        told = reference.tokenizer.decode(answer, skip_special_tokens=True)
        assert choice["message"]["content"] == told
    assert "Paris" in replies[0]["choices"][0]["message"]["content"]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_as_likely_as_transformers_says(
    name: str, client: httpx.Client, exact: dict[str, NDArray[np.float64]]
) -> None:
    body = {"prompt": TEXTS[name], "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    response = client.post("/v1/completions", json=body, timeout=5 * WAIT_S)
    assert response.status_code == 200, response.text
    told = response.json()["choices"][0]["logprobs"]["token_logprobs"]
    wanted = exact[name]
    assert told[0] is None
    scores = np.array(told[1 : 1 + len(wanted)])  # behind them is that of the answer
    np.testing.assert_allclose(scores, wanted, atol=TIE)
    assert perplexity(wanted) < 70  # of a model whose weights are in their places; else it is thousands
    assert perplexity(scores) == pytest.approx(perplexity(wanted), rel=1e-4)


@pytest.mark.parametrize(
    ("kv", "token", "mean"),
    [pytest.param(False, 1e-3, 1e-4, id="weights"), pytest.param(True, 1, 0.01, id="kv")],
)
def test_fp8_costs_what_its_rounding_costs(
    kv: bool, token: float, mean: float, directory: Path, exact: dict[str, NDArray[np.float64]]
) -> None:
    """Rounded weights are the same ones in both. Keys and values are computed in another order before they
    are rounded: a last bit puts some of them on the other neighbour, and these put others there in later
    layers. So single tokens differ, but not their mean, nor what the rounding costs."""
    rounded = RoundedReference(directory, kv=kv)
    rounded.most = FEW
    wanted = rounded.scores(rounded.text("alice"))
    exactly = exact["alice"][: len(wanted)]
    flags = ["--quantization=fp8", *(["--kv-cache-dtype=fp8"] if kv else [])]
    ring = f"real-model-{os.getpid()}"
    asked = () if kv else QUESTIONS[:2]
    found = measure(directory, ring, rounded, *flags, device="cpu", texts=["alice"], questions=asked)
    scores = found.scores["alice"]
    np.testing.assert_allclose(scores, wanted, atol=token)
    assert scores.mean() == pytest.approx(wanted.mean(), abs=mean)
    cost = abs(wanted - exactly).mean()
    assert cost > 0.1
    assert abs(scores - exactly).mean() < 1.25 * cost
    for question, answer in zip(asked, found.answers, strict=True):
        assert rounded.regrets(rounded.prompt(question), answer).max() <= TIE


@pytest.mark.parametrize("kind", ["int4", "mxfp4"])
def test_four_bits_cost_what_their_rounding_costs(
    kind: str, directory: Path, exact: dict[str, NDArray[np.float64]]
) -> None:
    rounded = RoundedReference(directory, form=ROUNDINGS[kind])
    rounded.most = FEW
    wanted = rounded.scores(rounded.text("alice"))
    ring = f"real-model-{os.getpid()}"
    found = measure(
        directory, ring, rounded, f"--quantization={kind}", device="cpu", texts=["alice"], questions=[]
    )
    scores = found.scores["alice"]
    np.testing.assert_allclose(scores, wanted, atol=TIE)
    assert scores.mean() == pytest.approx(wanted.mean(), abs=1e-4)
    assert perplexity(scores) > 1.05 * perplexity(exact["alice"][: len(wanted)])  # more than fp8 costs


def test_tools_are_refused_as_its_template_knows_none(client: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "Is it raining?"}], "tools": [TOOL], "max_tokens": 4}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "tools"
    assert "template" in error["message"]


def test_an_answer_has_no_reasoning(client: httpx.Client) -> None:
    (choice,) = chat(client, "Why is the sky blue?", max_tokens=8)["choices"]
    assert choice["message"]["content"]
    assert not choice["message"].get("reasoning_content")


def test_a_system_message_takes_the_place_of_the_templates_own(
    client: httpx.Client, reference: Reference
) -> None:
    messages = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Hi"}]
    body = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
    told = client.post("/v1/chat/completions", json=body).json()["prompt_token_ids"]
    assert told == reference.tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


def test_a_prompt_that_comes_again_is_found(client: httpx.Client) -> None:
    first, second = (chat(client, "Tell me all about prefix caches, slowly.", max_tokens=12) for _ in "ab")
    assert first["choices"][0]["message"] == second["choices"][0]["message"]
    prompt = second["usage"]["prompt_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= prompt - 16
