"""Which of the files that transformers writes have the chat template, and the tokens that it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nic_frontend.templates.chat_template import TemplateSource, check_syntax, read_source
from ringbuffer.model_file import ModelFileError


def write(directory: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


NAMED = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
TOOLS = {"name": "tool_use", "template": "t"}
CONFIG, JINJA, LEGACY = "tokenizer_config.json", "chat_template.jinja", "chat_template.json"
ADDITIONAL = "additional_chat_templates/tool_use.jinja"


@pytest.mark.parametrize(
    ("files", "default", "with_tools"),
    [
        ({}, None, ""),
        ({CONFIG: {"chat_template": None}}, None, ""),
        ({CONFIG: {"chat_template": "c"}}, "c", ""),
        ({CONFIG: {"chat_template": NAMED}}, "d", ""),
        ({CONFIG: {"chat_template": [*NAMED, TOOLS]}}, "d", "t"),
        ({CONFIG: {"chat_template": {"default": "d", "tool_use": "t"}}}, "d", "t"),
        ({CONFIG: {"chat_template": [TOOLS]}}, None, ""),
        ({CONFIG: {"chat_template": [*NAMED, TOOLS]}, JINJA: "j"}, "j", ""),
        ({JINJA: "j", ADDITIONAL: "a"}, "j", "a"),
        ({CONFIG: {"chat_template": [*NAMED, TOOLS]}, JINJA: "j", ADDITIONAL: "a"}, "j", "a"),
        ({CONFIG: {"chat_template": "c"}, ADDITIONAL: "a"}, "c", "a"),
        ({JINJA: "j", "additional_chat_templates/rag.jinja": "r"}, "j", ""),
        ({LEGACY: {"chat_template": "l"}}, "l", ""),
        ({LEGACY: {"chat_template": "l"}, CONFIG: {"chat_template": "c"}}, "c", ""),
        ({LEGACY: {"chat_template": "l"}, JINJA: "j"}, "j", ""),
    ],
)
def test_which_files_have_the_template(
    tmp_path: Path, files: dict[str, Any], default: str | None, with_tools: str
) -> None:
    write(tmp_path, files)
    source = read_source(tmp_path)
    assert source == (TemplateSource(default, {}, with_tools) if default else None)


def test_a_file_that_was_named_takes_the_place_of_all(tmp_path: Path) -> None:
    write(tmp_path, {CONFIG: {"chat_template": [*NAMED, TOOLS]}, JINJA: "j", ADDITIONAL: "a", "mine": "m"})
    assert read_source(tmp_path, tmp_path / "mine") == TemplateSource("m", {})


@pytest.mark.parametrize("template", [7, [{"name": "default"}], {"default": ["d"]}])
def test_templates_that_are_none_are_refused_by_their_file(tmp_path: Path, template: Any) -> None:
    for name in (CONFIG, LEGACY):
        write(tmp_path, {name: {"chat_template": template}})
        with pytest.raises(ModelFileError, match=rf"{name}: chat_template must be"):
            read_source(tmp_path)
        (tmp_path / name).unlink()


@pytest.mark.parametrize("template", ["{% " + "a" * 10**6 + " %}", "{% if x %}{% end" + "z" * 10**6 + " %}"])
def test_what_is_no_jinja_is_told_in_a_short_line(template: str) -> None:
    with pytest.raises(ValueError, match="line 1 is no Jinja: ") as caught:
        check_syntax(template)
    assert len(str(caught.value)) < 1000


def test_special_tokens_of_all_files_and_of_one_model_alone(tmp_path: Path) -> None:
    """As transformers passes them to templates."""
    config = {
        "chat_template": "c",
        "added_tokens_decoder": {},
        "eos_token": {"content": "<e>"},
        "image_token": "<image>",
        "boi_token": {"content": "<boi>"},
        "add_bos_token": True,
        "extra_special_tokens": {"audio_token": "<audio>"},
    }
    write(tmp_path, {CONFIG: config, "special_tokens_map.json": {"bos_token": "<b>", "eos_token": "<x>"}})
    source = read_source(tmp_path)
    assert source is not None
    assert source.special_tokens == {
        "bos_token": "<b>",
        "eos_token": "<e>",
        "image_token": "<image>",
        "boi_token": "<boi>",
        "audio_token": "<audio>",
    }
