"""What `blink serve` reads at its start, from the files of every family that it supports, as published."""

# ruff: noqa: RUF001 (DeepSeek's marks have wide bars)

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import transformers
from published_model import FAMILIES, PUBLISHED, TOKENIZERS, published_model, write_weights
from serve_process import ServeProcess

from gpu_backend.banner import NO_END
from gpu_backend.models.description import Model
from gpu_backend.models.registry import read_model
from nic_frontend.api.sampling_defaults import read_defaults
from nic_frontend.templates.chat_template import ChatTemplate, read_source
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.text.tokenizer import Tokenizer
from ringbuffer.special_tokens import read_special_tokens
from ringbuffer.token_bytes import SPECIAL, answer_bytes, has_bytes

TEXT = "Hello, it's 2,024 days — é 漢字 😀\n\tdone"
HELLO = [{"role": "user", "content": "Hello there"}]


class Expected(NamedTuple):
    """What a family's files say: the tokens that end an answer, the context, the windows in the order in
    which layers first have them, sampling, and what opens an answer."""

    ends: tuple[str, ...]
    context: int
    windows: tuple[int | None, ...]
    sampling: dict[str, float]
    opens: str


QWEN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
GEMMA = ("<eos>", "<end_of_turn>")
EXPECTED = {
    "gemma-3-12b": Expected(GEMMA, 131072, (1024, None), {"top_p": 0.95, "top_k": 64}, "model\n"),
    "gemma-3-1b": Expected(GEMMA, 32768, (512, None), {"top_p": 0.95, "top_k": 64}, "model\n"),
    "llama-2": Expected(("</s>",), 4096, (None,), {"temperature": 0.9, "top_p": 0.6}, "[/INST]"),
    "llama-3.1": Expected(
        ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"), 131072, (None,),
        {"temperature": 0.6, "top_p": 0.9}, "assistant<|end_header_id|>",
    ),
    "ministral": Expected(("</s>",), 32768, (None,), {}, "[/INST]"),
    "ministral-3": Expected(("</s>",), 262144, (None,), {}, "[/INST]"),
    "mistral-nemo": Expected(("</s>",), 1024000, (None,), {}, "[/INST]"),
    "phi-3": Expected(
        ("<|endoftext|>", "<|assistant|>", "<|end|>"), 4096, (2047,), {}, "<|assistant|>\n",
    ),
    "phi-4": Expected(("<|endoftext|>", "<|im_end|>"), 16384, (None,), {}, "assistant<|im_sep|>"),
    "phi-4-mini": Expected(("<|end|>", "<|endoftext|>"), 131072, (None,), {}, "<|assistant|>"),
    "qwen2.5": Expected(
        ("<|im_end|>", "<|endoftext|>"), 131072, (None,),
        {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1}, "assistant\n",
    ),
    "qwen3": Expected(("<|im_end|>", "<|endoftext|>"), 40960, (None,), QWEN, "assistant\n"),
    "qwen3-moe": Expected(("<|im_end|>", "<|endoftext|>"), 40960, (None,), QWEN, "assistant\n"),
    "r1-distill-qwen": Expected(
        ("<｜end▁of▁sentence｜>",), 131072, (None,), {"temperature": 0.6, "top_p": 0.95}, "<｜Assistant｜>"
    ),
}  # fmt: skip
SMALL = {
    "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "original_max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def directory(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_model(tmp_path_factory.mktemp("published") / family, family)


@pytest.fixture(scope="module")
def model(directory: Path) -> Model:
    return read_model(directory)


@pytest.fixture(scope="module")
def tokenizer(directory: Path, model: Model) -> Tokenizer:
    return Tokenizer(directory, model.vocab_size)


def test_every_family_has_its_files() -> None:
    assert set(EXPECTED) == set(FAMILIES)
    for family in FAMILIES:
        names = {path.name for path in (PUBLISHED / family).iterdir()}
        assert {"config.json", "generation_config.json"} <= names
        assert (family in TOKENIZERS) != ({"tokenizer.json", "tokenizer_config.json"} <= names)


def test_the_description(family: str, directory: Path, model: Model) -> None:
    expected = EXPECTED[family]
    raw = json.loads((directory / "config.json").read_text())
    fields = {**raw, **raw.get("text_config", {})}
    assert (model.max_context, model.windows) == (expected.context, expected.windows)
    assert (model.hidden, model.n_layers) == (fields["hidden_size"], fields["num_hidden_layers"])
    assert (model.vocab_size, model.dtype) == (fields["vocab_size"], raw.get("torch_dtype") or raw["dtype"])


def test_answers_end(family: str, model: Model, tokenizer: Tokenizer) -> None:
    assert sorted(tokenizer.strings(list(model.eos_ids))) == sorted(EXPECTED[family].ends)


def test_sampling(family: str, directory: Path) -> None:
    assert read_defaults(directory) == EXPECTED[family].sampling


def test_texts_become_tokens_and_texts_again(directory: Path, model: Model, tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode_now(TEXT)
    assert tokenizer.decode_now(tokens).strip() == TEXT
    assert b"".join(map(tokenizer.bytes_of, tokens)).decode().strip() == TEXT
    assert has_bytes(directory)
    table = answer_bytes(directory, model.vocab_size)
    assert table is not None
    assert {table[end][:1] for end in model.eos_ids} == {SPECIAL}


def test_special_tokens_are_those_of_transformers(directory: Path, tokenizer: Tokenizer) -> None:
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(directory).special_tokens_map
    tokens = read_special_tokens(directory)
    assert tokens == {name: text for name, text in theirs.items() if name in tokens}
    for text in tokens.values():
        (token,) = tokenizer.encode_now(text)
        assert tokenizer.strings([token]) == [text]


def test_a_chat_becomes_a_prompt(family: str, directory: Path, tokenizer: Tokenizer) -> None:
    source = read_source(directory)
    assert source is not None
    prompt = ChatTemplate(source).render(HELLO, PromptEnd.ANSWER, {})
    assert "Hello there" in prompt
    assert EXPECTED[family].opens in prompt[prompt.index("Hello there") :]
    read = tokenizer.decode_now(tokenizer.encode_now(prompt))
    assert "".join(read.split()) == "".join(prompt.split())  # some marks take the spaces beside them


def test_what_transformers_writes_anew_means_the_same(
    family: str, directory: Path, model: Model, tmp_path: Path
) -> None:
    """As after a fine-tuning: version 5 has other names for fields, and other files."""
    for kind in (
        transformers.AutoConfig,
        transformers.GenerationConfig,
        transformers.PreTrainedTokenizerFast,
    ):
        kind.from_pretrained(directory).save_pretrained(tmp_path)
    assert not (tmp_path / "special_tokens_map.json").exists()
    assert read_model(tmp_path) == model
    assert read_defaults(tmp_path) == EXPECTED[family].sampling
    theirs = read_special_tokens(tmp_path)
    assert read_special_tokens(directory).items() <= theirs.items()
    source, again = read_source(directory), read_source(tmp_path)
    assert source is not None
    assert again is not None
    assert again.text == source.text


@pytest.mark.slow
def test_a_small_model_with_published_files_is_served_and_ends_its_turns(tmp_path: Path) -> None:
    """Phi-4, whose tokenizer alone names the end of a turn, from shards whose index names too much."""
    directory = published_model(tmp_path / "phi-4", "phi-4", **SMALL)
    write_weights(directory)
    server = ServeProcess(model=str(directory))
    try:
        client = server.wait_ready().client
        end = {"allowed_token_ids": [100265], "max_tokens": 4}
        for path, body in (
            ("/v1/chat/completions", {"messages": HELLO}),
            ("/v1/completions", {"prompt": TEXT}),
        ):
            answer = client.post(path, json={**body, **end}).json()
            assert answer["choices"][0]["finish_reason"] == "stop", answer
        assert NO_END not in server.output
    finally:
        server.close()
