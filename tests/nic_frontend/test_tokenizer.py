"""The tokenizer: fastokens where it proves exact, tokenizers where it does not; and chat templates."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import WAIT_S
from tiny_model import VOCAB_SIZE, build_tokenizer, write_model
from tokenizers import Regex, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Reference

from nic_frontend.errors import ApiError
from nic_frontend.templates.chat_template import ChatTemplate, TemplateSource
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.text.tokenizer import LONG_TEXT, Tokenizer


def encode(tokenizer: Tokenizer, text: str, special: bool = False) -> list[int]:
    (tokens,) = asyncio.run(tokenizer.encode([text], special=special, param="prompt"))
    return tokens.tolist()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Reference]:
    """Of the kind Llama-3 and Qwen have: a regular expression splits, and the template processor adds a begin
    token.
    """
    reference = build_tokenizer()
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    reference.normalizer = normalizers.NFC()
    reference.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    directory = write_model(tmp_path_factory.mktemp("split"), reference)
    return Tokenizer(directory, VOCAB_SIZE), reference


def test_fastokens_is_used_where_it_is_exact(loaded: tuple[Tokenizer, Reference]) -> None:
    assert loaded[0].engine == "fastokens"


@given(text=st.text(max_size=60), special=st.booleans())
def test_tokens_are_those_of_tokenizers(
    loaded: tuple[Tokenizer, Reference], text: str, special: bool
) -> None:
    tokenizer, reference = loaded
    assert encode(tokenizer, text, special) == reference.encode(text, add_special_tokens=special).ids


def test_falls_back_with_the_reason(model_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    import fastokens

    class Wrong:
        """Exact but for one string that the self-check has."""

        def __init__(self, path: str) -> None:
            self._right = Reference.from_file(path)

        @classmethod
        def from_file(cls, path: str) -> Wrong:
            return cls(path)

        def no_padding(self) -> None:
            pass

        def no_truncation(self) -> None:
            pass

        def encode_batch_flat(self, texts: list[str], add_special_tokens: bool) -> tuple[bytes, bytes]:
            (text,) = texts
            right = self._right.encode(text.replace("\u017f", "s"), add_special_tokens=add_special_tokens)
            return np.array(right.ids, np.uint32).tobytes(), b""

    monkeypatch.setattr(fastokens, "Tokenizer", Wrong)
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer(model_dir, VOCAB_SIZE)
    assert tokenizer.engine == "tokenizers"
    (record,) = [r for r in caplog.records if r.name == "nic_frontend.text.tokenizer"]
    assert "differs from tokenizers on" in record.getMessage()
    reference = Reference.from_file(str(model_dir / "tokenizer.json"))
    assert encode(tokenizer, "it's fine") == reference.encode("it's fine").ids


@pytest.mark.parametrize("engine", ["fastokens", "tokenizers"])
@pytest.mark.parametrize(
    "spoil", [lambda made: made.enable_truncation(2048), lambda made: made.enable_padding(length=8)]
)
def test_a_tokenizer_file_that_truncates_or_pads_does_not_here(
    tmp_path: Path, engine: str, spoil: Callable[[Reference], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such files come from trainings: what was trained with is no limit of the model's."""
    reference = build_tokenizer()
    texts = ["", "a b", "a b " * LONG_TEXT]
    whole = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    spoil(reference)
    if engine == "tokenizers":
        monkeypatch.delattr("fastokens.Tokenizer")
    tokenizer = Tokenizer(write_model(tmp_path, reference), VOCAB_SIZE)
    assert tokenizer.engine == engine
    assert [encode(tokenizer, text) for text in texts] == whole


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Tokenizer(tmp_path, VOCAB_SIZE)
    write_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot use the tokenizer files"):
        Tokenizer(tmp_path, VOCAB_SIZE)


def test_lone_surrogates_are_refused(model_dir: Path) -> None:
    with pytest.raises(ApiError, match="surrogate"):
        encode(Tokenizer(model_dir, VOCAB_SIZE), "a\ud800")


def render(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    template = ChatTemplate(TemplateSource(source, {"bos_token": "<s>", "eos_token": "</s>"}))
    end = PromptEnd.ANSWER if options.pop("add_generation_prompt", True) else PromptEnd.CLOSED
    return template.render(messages, end, options)


def test_a_text_that_never_ends_holds_up_long_texts_for_a_while(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And short ones not at all. What comes behind it is refused, and not waited for without end."""
    monkeypatch.setattr("nic_frontend.text.tokenizer.THREAD_S", 0.1)
    tokenizer, ends = Tokenizer(model_dir, VOCAB_SIZE), threading.Event()
    whole = tokenizer._encode
    monkeypatch.setattr(
        tokenizer,
        "_encode",
        lambda text, special: ends.wait(WAIT_S) and [] if text[0] == "!" else whole(text, special),
    )
    for text in ("!" * (LONG_TEXT + 1), "a" * (LONG_TEXT + 1)):
        with pytest.raises(ApiError) as refused:
            encode(tokenizer, text)
        assert refused.value.status == 503
    assert encode(tokenizer, "a")
    ends.set()
    monkeypatch.setattr("nic_frontend.text.tokenizer.THREAD_S", WAIT_S)
    assert encode(tokenizer, "a" * (LONG_TEXT + 1))


def test_template_helpers() -> None:
    user = [{"role": "user", "content": "hi <b> é"}]

    def shown(source: str, **options: Any) -> str:
        """What a part of a template writes, before what the user says."""
        return render(source + "{{ messages[0].content }}", user, **options).removesuffix("hi <b> é")

    assert render("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}", user) == "<s>hi <b> é</s>"
    assert render("{{ messages[0] | tojson }}", user) == '{"role": "user", "content": "hi <b> é"}'
    assert shown("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "012"
    assert len(shown("{{ strftime_now('%d %b %Y') }}")) == len("26 Jul 2024")
    assert shown("{% generation %}x{% endgeneration %}") == "x"
    assert shown("{% if tools is none %}no tools{% endif %}") == "no tools"
    assert shown("{{ enable_thinking }}", enable_thinking=False) == "False"
    assert shown("  {% if true %}\nx\n  {% endif %}\n") == "x\n"  # trim_blocks and lstrip_blocks


def test_templates_are_sandboxed() -> None:
    for source in (
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10**9) %}x{% endfor %}",
    ):
        with pytest.raises(ApiError, match="chat template refuses"):
            render(source, [{"role": "user", "content": "x"}])


def test_the_demo_model() -> None:
    tokenizer = Tokenizer(Path(__file__).resolve().parents[2] / "models" / "demo", 1024)
    assert tokenizer.engine == "fastokens"
    text = "Once upon a time, 2 + 3 = 5. naïve 漢字 😀"
    tokens = encode(tokenizer, text, special=True)
    stream = tokenizer.detokenizer(skip_special_tokens=True, prompt=np.array([], dtype=np.uint32))
    assert "".join(stream.feed(token) for token in tokens) + stream.flush() == text
