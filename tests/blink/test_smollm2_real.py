"""SmolLM2's directory beside what transformers reads from the same GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real_model import QUESTIONS, TEXTS, made_directory
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

from blink import smollm2
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint
from nic_frontend.templates.chat_template import ChatTemplate, read_source
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.text.tokenizer import Tokenizer as ServedTokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory() -> Path:
    return made_directory()


@pytest.fixture(scope="module")
def file() -> Path:
    try:
        return smollm2.packaged_file()
    except smollm2.PackageMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def theirs(file: Path) -> Any:
    return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def test_the_weights_are_whole(directory: Path) -> None:
    """Names, shapes and types; tests/e2e/test_real_model.py shows that transformers makes sense of them."""
    checkpoint = Checkpoint(directory)
    checkpoint.check_all(read_model(directory))
    assert len([*checkpoint]) == 272
    assert {checkpoint.dtype(name) for name in checkpoint} == {"bfloat16"}


def test_what_transformers_writes_is_read(theirs: Any, tmp_path: Path) -> None:
    """A tokenizer without a maximum has an integer of 31 digits for it."""
    theirs.save_pretrained(tmp_path)
    assert (
        f'"model_max_length": {10**30 + 19884624838656}' in (tmp_path / "tokenizer_config.json").read_text()
    )
    source = read_source(tmp_path)
    assert source is not None
    messages = [{"role": "user", "content": "Hi"}]
    rendered = ChatTemplate(source).render(messages, PromptEnd.ANSWER, {})
    assert rendered == theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert ServedTokenizer(tmp_path, len(theirs)).encode_now(rendered) == theirs(rendered)["input_ids"]


def test_the_tokenizer_is_the_one_that_transformers_reads_but_for_digits(
    directory: Path, theirs: Any
) -> None:
    """transformers leaves out that SmolLM's digits stand alone, which shows where spaces are before them."""
    backend = theirs.backend_tokenizer
    ours = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert ours.get_vocab() == backend.get_vocab()
    assert ours.get_added_tokens_decoder().keys() == backend.get_added_tokens_decoder().keys()
    assert ours.encode("a   12").tokens == ["a", "ĠĠĠ", "1", "2"]
    assert backend.encode("a   12").tokens == ["a", "ĠĠ", "Ġ", "1", "2"]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
    )
    texts = [
        *QUESTIONS,
        *TEXTS.values(),
        "",
        " ",
        "\n\n \t",
        "<|im_start|>user\n<|im_end|><empty_output>x",
        "½ Ⅷ ٣",
    ]
    for text in texts:
        ids = ours.encode(text).ids
        assert ids == backend.encode(text).ids
        assert ours.decode(ids, skip_special_tokens=False) == text


def test_transformers_reads_the_directorys_tokenizer_as_it_is(directory: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(directory)
    ours = Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in (*QUESTIONS, *TEXTS.values()):
        assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert (theirs.eos_token, theirs.model_max_length) == ("<|im_end|>", 8192)
