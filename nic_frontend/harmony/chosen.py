"""Whether a model directory is of a model that reads and writes harmony, and what renders for it then."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

from nic_frontend.harmony.marks import IDS
from nic_frontend.parsing.registry import AUTO
from nic_frontend.templates.renderer import Bounds, Renderer
from nic_frontend.text.tokenizer import Tokenizer
from ringbuffer.model_file import read_json

log = logging.getLogger(__name__)

MODEL_TYPE = "gpt_oss"
LIBRARY = "openai_harmony"


def speaks_harmony(directory: Path, tokenizer: Tokenizer) -> bool:
    """Whether it is a gpt-oss model with the vocabulary of those. Others have made-up weights, and are served
    by their chat template, like any model.
    """
    if read_json(directory / "config.json").get("model_type") != MODEL_TYPE:
        return False
    others = [mark for mark, token in IDS.items() if tokenizer.special_ids((mark,)) != {token}]
    if others:
        log.warning(
            "%s: its vocabulary is not o200k_harmony (%s has another id, or is not special), so its chat "
            "template writes prompts, and answers are not read as harmony",
            directory, others[0],
        )  # fmt: skip
    return not others


def open_harmony(directory: Path, bounds: Bounds, parsers: tuple[str, ...]) -> Renderer:
    """`parsers` are those that the server was told to use. Raises ValueError where one was named, or OpenAI's
    library is missing, or does not take the vocabulary.
    """
    if others := [name for name in parsers if name != AUTO]:
        raise ValueError(
            f"{directory}: a gpt-oss model writes thoughts and calls in harmony, so there is no choice of "
            f"parsers: leave out {', '.join(others)}"
        )
    if importlib.util.find_spec(LIBRARY) is None:
        raise ValueError(
            f"{directory}: gpt-oss models need OpenAI's library openai-harmony (blink's extra 'harmony'), or "
            "--chat-template FILE, which writes prompts in another way"
        )
    return Renderer(directory, None, bounds, "nic_frontend.harmony.process")
