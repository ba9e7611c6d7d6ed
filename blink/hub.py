"""Models by their names on a Hugging Face hub (`Qwen/Qwen3-0.6B`): downloaded once, then taken from a cache.

huggingface_hub does it (the extra `hub`), and its variables hold: HF_HOME, HF_TOKEN, HF_ENDPOINT,
HF_HUB_OFFLINE.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from blink.errors import CommandError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
FILES = ["*.json", "*.jinja", "*.safetensors"]  # what a model directory has of use
# What folders have is for other programs, but for templates (additional_chat_templates/), which are small
# wherever they are; Mistral has a second copy of its weights.
NOT = ["*/*.json", "*/*.safetensors", "consolidated*.safetensors"]
WEIGHTS = "*.safetensors"
PUBLIC = "https://huggingface.co"


def is_hub_name(text: str) -> bool:
    """Whether it names a model of a hub: OWNER/NAME, which is no directory here."""
    return NAME.fullmatch(text) is not None and not Path(text).exists()


def download(name: str, revision: str | None, *, weights: bool) -> Path:
    """The directory of the model's files, with its `weights` or without.

    Raises CommandError, with what to do, and ModuleNotFoundError without the extra.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    ignored = NOT if weights else [*NOT, WEIGHTS]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=FILES, ignore_patterns=ignored))
    except GatedRepoError as error:
        raise CommandError(
            f"{name} is given only to those who have agreed to its terms: do so at {_host()}/{name}, and set "
            "HF_TOKEN to a token of yours (or log in with `hf auth login`)"
        ) from error
    except RevisionNotFoundError as error:
        raise CommandError(f"{name} has no revision {revision}") from error
    except RepositoryNotFoundError as error:
        raise CommandError(
            f"{_host()} has no model {name}, or has it for others only: check the name, or set HF_TOKEN"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError) as error:
        answer = getattr(
            error.__cause__ or error, "response", None
        )  # to the question that a cache would spare
        if answer is None:
            raise CommandError(_unreachable(name)) from error
        status = answer.status_code
        raise CommandError(f"cannot get {name}: {_host()} answers {status}; try again later") from error
    except (OSError, RuntimeError) as error:  # of the transport, which differs by version
        told = " ".join(str(error).split())
        raise CommandError(f"{_unreachable(name)} ({told[:200]})") from error


def _host() -> str:
    return os.environ.get("HF_ENDPOINT", PUBLIC).rstrip("/")


def _unreachable(name: str) -> str:
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    why = "HF_HUB_OFFLINE forbids to ask for it" if offline else f"{_host()} cannot be reached from here"
    return (
        f"{name} is no directory here, is not in the cache, and {why}: "
        "download it on another machine and give its directory, or set HF_ENDPOINT to a mirror"
    )
