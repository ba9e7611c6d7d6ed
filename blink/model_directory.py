"""The model that a command is given: a Hugging Face directory, or the word `demo`."""

from __future__ import annotations

from pathlib import Path

from blink.errors import CommandError

DEMO = "demo"
NEEDED = ("config.json", "tokenizer.json")  # by both planes


def demo_directory() -> Path:
    """The demo model: models/demo of a checkout, or the copy in an installed package."""
    package = Path(__file__).resolve().parent
    for directory in (package.parent / "models" / DEMO, package / "_models" / DEMO):
        if (directory / "config.json").is_file():
            return directory
    raise CommandError("the demo model is not there: reinstall the package, or give a model directory")


def model_directory(text: str) -> Path:
    """The directory that `text` names. Raises CommandError when it holds no model."""
    if text == DEMO:
        return demo_directory()
    directory = Path(text).expanduser()
    if not directory.is_dir():
        raise CommandError(f"no directory {text}: give a Hugging Face model directory, or 'demo'")
    missing = [name for name in NEEDED if not (directory / name).is_file()]
    if missing:
        raise CommandError(
            f"{text} has no {' and no '.join(missing)}: a model directory has "
            "config.json, tokenizer.json and *.safetensors"
        )
    return directory
