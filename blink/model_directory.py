"""The model that a command is given: a Hugging Face directory, a name on the hub, `demo` or `smollm2`."""

from __future__ import annotations

import argparse
from pathlib import Path

from blink import smollm2
from blink.errors import CommandError
from blink.hub import download, is_hub_name

DEMO = "demo"
NEEDED = ("config.json", "tokenizer.json")  # by both planes
HELP = "a Hugging Face model directory, a model's name on the hub (OWNER/NAME), 'demo' or 'smollm2'"


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=HELP)
    parser.add_argument(
        "--revision", metavar="REVISION", help="branch, tag or commit of a model on the hub (default: main)"
    )


def demo_directory() -> Path:
    """The demo model: models/demo of a checkout, or the copy in an installed package."""
    package = Path(__file__).resolve().parent
    for directory in (package.parent / "models" / DEMO, package / "_models" / DEMO):
        if (directory / "config.json").is_file():
            return directory
    raise CommandError("the demo model is not there: reinstall the package, or give a model directory")


def model_directory(text: str, revision: str | None = None, *, weights: bool = True) -> Path:
    """The directory that `text` names: downloaded where it is a name on the hub, with its weights or without,
    and made where it is `smollm2` and no directory is called so.

    Raises CommandError when it holds no model.
    """
    if text == DEMO:
        return demo_directory()
    is_from_hub = is_hub_name(text)
    if revision is not None and not is_from_hub:
        raise CommandError(f"--revision is for models on the hub (OWNER/NAME), and {text} is none")
    if text == smollm2.NAME and not Path(text).exists():
        return smollm2.directory()
    directory = download(text, revision, weights=weights) if is_from_hub else Path(text).expanduser()
    if not directory.is_dir():
        raise CommandError(f"no directory {text}: give {HELP}")
    missing = [name for name in NEEDED if not (directory / name).is_file()]
    if missing:
        raise CommandError(
            f"{text} has no {' and no '.join(missing)}: a model directory has "
            "config.json, tokenizer.json and *.safetensors"
        )
    return directory


def public_name(text: str) -> dict[str, str]:
    """How a backend's model is called where no flag says it: as on the hub, else by its directory."""
    return {"model_name": text} if is_hub_name(text) else {}
