"""Sampling of requests that do not set it: what the model's generation_config.json recommends, as in vLLM."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from nic_frontend.api.schema import generation
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.rows import names_of_model
from nic_frontend.errors import ApiError
from ringbuffer.model_file import read_json, whole

log = logging.getLogger(__name__)


def read_defaults(model_dir: Path) -> dict[str, Any]:
    """The values in the file, by the names of a request's fields; none where there is no file.

    Raises ValueError for what a request could not ask for either.
    """
    path = model_dir / "generation_config.json"
    if not path.exists():
        return {}
    try:
        found = read_json(path)
        if (top_k := whole(found.get("top_k"))) is not None and top_k > generation.MAX_TOP_K:
            found["top_k"] = 0  # all tokens, as every number beyond the vocabulary means
        checked(found, generation.ModelSampling)
    except ApiError as error:
        raise ValueError(f"{path}: {error}") from error
    names = names_of_model(generation.ModelSampling)
    defaults = {name: found[name] for name in names if found.get(name) is not None}
    if defaults:
        shown = ", ".join(f"{name} {value}" for name, value in defaults.items())
        log.info("sampling defaults of %s: %s", path, shown)
    return defaults


def fill_in(body: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Sets in a request's body what it leaves out."""
    for name, value in defaults.items():
        if body.get(name) is None:
            body[name] = value
