"""Logits processors end to end, as the official client asks for them: on the emulation, what Numba compiles
for the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest
from demo_client import Body, items
from limits import PROGRAM_S, WAIT_S
from ring_files import remove_ring
from serve_process import ROOT, ServeProcess
from serving import wait_for_ring
from tokenizers import Tokenizer

from blink.example_processors import GREEN_SHARE, is_green
from ringbuffer.abi import Reason
from ringbuffer.client import RingClient
from ringbuffer.extents import controls
from ringbuffer.region import ring_path

FLAGS = ("--max-batch=16", "--max-prefill-tokens=256")
SPECULATION = {
    "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1,
}  # fmt: skip
FILE = Path(__file__).with_name("processors_for_tests.py")
PROCESSORS = (
    "--logits-processor=blink.example_processors:no_repeat,mark=blink.example_processors:watermark",
    "--logits-processor=blink.example_processors:no_repeated_pair",
    f"--logits-processor={FILE}:always",
)
TOKENIZER = ROOT / "models" / "demo" / "tokenizer.json"
WAYS: dict[str, Body] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "top_k": 40},
    "told": {"temperature": 0.7, "logprobs": 3, "repetition_penalty": 1.1},
}


@pytest.fixture(scope="module")
def plain() -> Iterator[ServeProcess]:
    """A server without the flag."""
    yield from served()


@pytest.fixture(scope="module")
def processing() -> Iterator[ServeProcess]:
    yield from served(*PROCESSORS)


def served(*flags: str) -> Iterator[ServeProcess]:
    process = ServeProcess(*FLAGS, *flags)
    try:
        yield process.wait_ready()
    finally:
        process.close()


def answers(server: ServeProcess, bodies: Sequence[Body]) -> list[dict[str, Any]]:
    """The first choices of completions, all asked for at once."""

    def one(body: Body) -> dict[str, Any]:
        response = server.client.post("/v1/completions", json={**body, "return_token_ids": True})
        assert response.status_code == 200, response.text
        choice: dict[str, Any] = response.json()["choices"][0]
        return choice

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(one, bodies))


def bodies(way: str, **fields: Any) -> list[Body]:
    return [
        {"prompt": item.prompt, "max_tokens": 48, "seed": seed, **WAYS[way], **fields}
        for seed, item in enumerate(items("count_long", 3) + items("story", 3))
    ]


def tokens_of(choice: dict[str, Any]) -> list[int]:
    found: list[int] = choice["token_ids"]
    return found


def test_a_ban_on_repeats_bans_them(processing: ServeProcess) -> None:
    """Of tokens among the last 32, the prompt's included; the openai client asks with extra_body."""
    with openai.OpenAI(base_url=f"{processing.url}/v1", api_key="none", timeout=WAIT_S) as client:
        answer = client.completions.create(
            model="demo", prompt="Count from 1 to 40.", max_tokens=60, temperature=0,
            extra_body={"logits_processors": ["no_repeat"], "return_token_ids": True, "ignore_eos": True},
        )  # fmt: skip
    choice = answer.choices[0].model_dump()
    prompt = Tokenizer.from_file(str(TOKENIZER)).encode("Count from 1 to 40.").ids
    tokens = [*prompt, *choice["token_ids"]]
    assert len(choice["token_ids"]) == 60
    for at in range(len(prompt), len(tokens)):
        assert tokens[at] not in tokens[max(at - 32, 0) : at]


@pytest.mark.parametrize(
    "way", ["greedy", *(pytest.param(way, marks=pytest.mark.slow) for way in list(WAYS)[1:])]
)
def test_those_who_do_not_ask_get_the_same_answers(
    plain: ServeProcess, processing: ServeProcess, way: str
) -> None:
    """Beside others who do, in the same steps: tokens and log-probabilities."""
    asked = bodies(way, logits_processors=["no_repeated_pair", "mark"])
    mixed = answers(processing, [body for pair in zip(bodies(way), asked, strict=True) for body in pair])
    expected = answers(plain, bodies(way))
    for ours, theirs in zip(mixed[::2], expected, strict=True):
        assert ours == theirs
    assert any(
        ours["token_ids"] != other["token_ids"] for ours, other in zip(mixed[::2], mixed[1::2], strict=True)
    )


def test_no_pair_comes_twice(processing: ServeProcess) -> None:
    for choice in answers(
        processing, bodies("greedy", logits_processors=["no_repeated_pair"], ignore_eos=True)
    ):
        tokens = tokens_of(choice)
        pairs = list(pairwise(tokens))
        assert len(set(pairs)) == len(pairs)


def test_a_watermark_is_found_where_it_is(processing: ServeProcess) -> None:
    """Most tokens are on the green list, and of an answer without it as many as chance has there."""

    def share(fields: Body) -> float:
        green = [
            is_green(before, token, GREEN_SHARE)
            for choice in answers(processing, bodies("sampled", **fields, ignore_eos=True))
            for before, token in pairwise(tokens_of(choice))
        ]
        return sum(green) / len(green)

    marked = {"logits_processors": ["mark"], "logits_processor_args": [0, 40]}
    assert share(marked) > 0.85
    assert share({}) < 0.7


def test_chats_and_responses_have_them_too(processing: ServeProcess) -> None:
    """A token is forced from the third position on."""
    extra = {"logits_processors": ["always"], "logits_processor_args": {"always": [300, 2]}}
    expected = Tokenizer.from_file(str(TOKENIZER)).decode([300, 300, 300])
    with openai.OpenAI(base_url=f"{processing.url}/v1", api_key="none", timeout=WAIT_S) as client:
        chat = client.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=5,
            temperature=0,
            extra_body=extra,
        )
        response = client.responses.create(
            model="demo", input="hi", max_output_tokens=5, temperature=0, extra_body=extra
        )
        with pytest.raises(openai.BadRequestError, match="this server has 'no_repeat', 'mark'"):
            client.chat.completions.create(
                model="demo",
                messages=[{"role": "user", "content": "hi"}],
                extra_body={"logits_processors": ["x"]},
            )
    assert (chat.choices[0].message.content or "").endswith(expected)
    assert response.output_text.endswith(expected)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_with_speculation_the_answers_are_the_same(processing: ServeProcess, way: str) -> None:
    """One answer repeats itself: few drafts are right where repeats are banned."""
    asked = [
        body for name in ("no_repeat", "no_repeated_pair") for body in bodies(way, logits_processors=[name])
    ]
    repeats = {"prompt": "1 2 3 4 5 6 7 8 " * 4, "max_tokens": 100, "ignore_eos": True, "seed": 1}
    asked.append({**repeats, **WAYS[way], "logits_processors": ["mark"]})
    speculating = ServeProcess(*FLAGS, *PROCESSORS, f"--speculative-config={json.dumps(SPECULATION)}")
    try:
        found = answers(speculating.wait_ready(), asked)
        assert speculating.idle_stats()["accepted_tokens"] > 0
    finally:
        speculating.close()
    assert found == answers(processing, asked)


def test_a_prompts_log_probabilities_are_the_models(processing: ServeProcess) -> None:
    told = []
    for names in ([], ["always"]):
        body = {"prompt": "Count from 1 to 9.", "max_tokens": 1, "temperature": 0, "prompt_logprobs": 2}
        (choice,) = answers(processing, [{**body, "logits_processors": names}])
        told.append(choice["prompt_logprobs"])
    assert told[0] == told[1]
    assert len(told[0]) > 3


def test_a_schema_is_kept_beside_a_processor(processing: ServeProcess) -> None:
    """What the processor makes likeliest and the schema does not allow does not come."""
    schema = {"type": "array", "items": {"enum": [10, 11, 12]}, "minItems": 3, "maxItems": 3}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = {
        "prompt": "x", "temperature": 0, "max_tokens": 64, "response_format": form,
        "logits_processors": ["always"], "logits_processor_args": [300],
    }  # fmt: skip
    (choice,) = answers(processing, [body])
    found = json.loads(choice["text"])
    assert len(found) == 3
    assert set(found) <= {10, 11, 12}


def test_a_processor_that_cannot_be_compiled_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def f(token, logit, position, recent, args):\n    return undefined_name\n")
    command = [sys.executable, "-m", "blink", "serve", "demo", "--device=cpu", "--port=0"]
    command.append(f"--logits-processor=bad={path}:f")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode != 0
    assert f"logits processor 'bad' ({path}:f) cannot be compiled: " in done.stderr
    assert "undefined_name" in done.stderr
    assert "Traceback" not in done.stderr


HANGS = """
import sys
from dataclasses import replace
from blink import cli
from gpu_backend.devices import emulated

emulated.CPU_PACE = replace(emulated.CPU_PACE, step_timeout_ns=2_000_000_000)
sys.exit(cli.main())
"""


def test_a_processor_that_does_not_end_ends_the_backend_and_is_named() -> None:
    """The trial at the start did not meet the number for which it goes on for ever."""
    name = "test-processor-hangs"
    command = [sys.executable, "-c", HANGS, "backend", "demo", "--device=cpu", f"--ring={name}"]
    command += [*FLAGS, f"--logits-processor={FILE}:loop"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        with closing(wait_for_ring(process, name)) as region, closing(RingClient(region)) as client:
            vocab = int(region.header["vocab_size"][0])
            reasons = []
            for number in (76, 77):
                asked = controls(vocab, processors=[(0, [number])])
                stream = client.submit([5, 6, 7], 4, controls=asked)
                client.wait([stream], WAIT_S)
                reasons.append(stream.reason)
        said = process.communicate(timeout=PROGRAM_S)[1]
    finally:
        process.kill()
        remove_ring(ring_path(name))
    assert reasons == [Reason.LENGTH, Reason.ENGINE_FAULT]
    assert process.returncode == 1
    assert "because the logits processor 'loop' does not end (fault PROCESSOR)" in said
    assert "the step still runs" in said
