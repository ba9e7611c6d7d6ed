"""tokenizer.json by somebody who means harm: refused before anybody is served, or an error of one request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from harness import COMPLETION, StartBackend, StartFrontend, error_of
from limits import WAIT_S
from tiny_model import VOCAB_SIZE, build_tokenizer, write_model
from tokenizers import Regex, normalizers, pre_tokenizers
from waiting import wait_until

from nic_frontend.errors import ApiError
from nic_frontend.text import tokenizer_trial
from nic_frontend.text.tokenizer import LONG_TEXT, Tokenizer
from nic_frontend.text.tokenizer_trial import try_tokenizer

ENDLESS = r"(%s+)+$"  # tried in 2^n ways: its engine gives a text up after some hundredths of a second


def written(directory: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    write_model(directory)
    content = json.loads((directory / "tokenizer.json").read_text())
    change(content)
    (directory / "tokenizer.json").write_text(json.dumps(content))
    return directory


def added(token_id: int) -> Callable[[dict[str, Any]], object]:
    token = {"content": "<x>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return lambda content: content["added_tokens"].append({"id": token_id, "special": True, **token})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (added(2**32 - 1), "a token with the id 4294967295"),
        (added(2**64), "cannot use the tokenizer"),
        (added(-1), "id"),
        (added(1 << 20), "ids are below 1048576"),
        (lambda content: content["model"]["vocab"].update(z=2**31), "id 2147483648"),
        (lambda content: content.update(added_tokens=7), "cannot use the tokenizer"),
        (lambda content: content.update(model="\n" * 10**6), "cannot use the tokenizer"),
        (lambda content: content.pop("model"), "cannot use the tokenizer"),
    ],
)
def test_it_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    directory = written(tmp_path, change)
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer(directory, VOCAB_SIZE)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def splitting(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def test_a_trial_refuses_what_fails_at_ordinary_texts(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.pre_tokenizer = splitting(r"(a+)+Z")
    with pytest.raises(ValueError, match=r"cannot use the tokenizer in .*: ") as caught:
        try_tokenizer(write_model(tmp_path / "hangs", tokenizer), VOCAB_SIZE)
    assert "\n" not in str(caught.value)
    try_tokenizer(write_model(tmp_path / "good"), VOCAB_SIZE)


@pytest.mark.slow  # to fill its memory
def test_a_trial_refuses_what_swells(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.normalizer = normalizers.Replace("a", "x" * (1 << 20))  # 32 GiB of 32 K characters
    with pytest.raises(ValueError, match="too much time or memory"):
        try_tokenizer(write_model(tmp_path / "swells", tokenizer), VOCAB_SIZE)


def test_a_trial_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_trial, "ENDS_S", 0.01)
    with pytest.raises(ValueError, match="takes more than"):
        try_tokenizer(write_model(tmp_path), VOCAB_SIZE)


def test_slow_tokenizers_are_named_with_the_text(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_trial, "SLOW_S", -1.0)
    told = tokenizer_trial.tried(model_dir, VOCAB_SIZE)
    assert told is not None
    assert "for 32768 characters of 'a'" in told


def test_a_text_that_makes_it_panic_is_refused_and_others_are_served(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.pre_tokenizer = splitting(ENDLESS % "z")
    loaded = Tokenizer(write_model(tmp_path, tokenizer), VOCAB_SIZE)

    async def encode(text: str) -> list[int]:
        (tokens,) = await loaded.encode([text], special=False, param="prompt")
        return list(tokens.tolist())

    hello = asyncio.run(encode("hello"))
    for length in (40, 40_000):  # on the event loop, and in the thread
        with pytest.raises(ApiError, match="the model's tokenizer fails at 'prompt'") as caught:
            asyncio.run(encode("z" * length + "b"))
        assert caught.value.status == 400
    assert asyncio.run(encode("hello")) == hello


def test_a_server_tells_it_as_an_error_of_the_request(
    tmp_path: Path,
    start_backend: StartBackend,
    start_frontend: StartFrontend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frontend = start_frontend(start_backend())

    def panic(text: str, special: bool) -> NoReturn:
        raise type("PanicException", (BaseException,), {})(
            "Onig: Regex search error: retry-limit-in-match over"
        )

    monkeypatch.setattr(frontend.service.tokenizer, "_encode", panic)
    response = frontend.client.post("/v1/completions", json=COMPLETION)
    assert "retry-limit-in-match over" in error_of(response, 400)["message"]
    monkeypatch.undo()
    assert frontend.client.post("/v1/completions", json=COMPLETION).status_code == 200


def test_a_frontend_whose_tokenizer_does_not_end_says_so_and_ends(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever started it starts another: this one would refuse every long text from now on."""
    monkeypatch.setattr("nic_frontend.text.tokenizer.THREAD_S", 0.3)
    monkeypatch.setattr("nic_frontend.text.text_thread.queued_s", lambda: {"": 0.0})
    frontend, ends = start_frontend(start_backend()), threading.Event()
    service = frontend.service
    whole = service.tokenizer._encode
    monkeypatch.setattr(
        service.tokenizer,
        "_encode",
        lambda text, special: ends.wait(WAIT_S) and [] if text[0] == "!" else whole(text, special),
    )
    endless = {**COMPLETION, "prompt": "!" * (LONG_TEXT + 1)}
    error_of(frontend.client.post("/v1/completions", json=endless), 503)
    wait_until(lambda: service.given_up is not None)
    assert "the tokenizer has been at one request's texts for 0.3 s" in str(service.given_up)
    ends.set()
