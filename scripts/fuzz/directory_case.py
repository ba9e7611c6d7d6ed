"""A hostile model directory as data: the demo model, and what is changed of its files.

A case maps names of files to one change each. It is JSON, so that what was found is kept as text
(corpus/model_directories.json).

    {"json": [[path, value], ...]}  sets values in a JSON file, or in the header of a safetensors file; a path
                                    is a list of keys and indices
    {"text": t}, {"repeat": [head, n, tail]}  the whole content
    {"fifo": 1}, {"folder": 1}, {"link": target}, {"sparse": n bytes}, {"missing": 1}
    {"bytes": [[offset, hexadecimal], ...]}, {"cut": n}  overwrites bytes of the file; cuts its end off
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
Change = dict[str, Any]
Case = dict[str, Change]


def write(case: Case, directory: Path) -> Path:
    """The directory of a case, which is made anew."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name in FILES:
        shutil.copyfile(DEMO / name, directory / name)
    for name, change in case.items():
        for kind, value in change.items():
            _CHANGES[kind](directory / name, value)
    return directory


def _json(path: Path, changes: list[tuple[list[str | int], Any]]) -> None:
    raw = path.read_bytes() if path.exists() else b"{}"
    is_tensors = path.suffix == ".safetensors"
    end = 8 + int.from_bytes(raw[:8], "little") if is_tensors else len(raw)
    value = json.loads(raw[8:end] if is_tensors else raw)
    for keys, wanted in changes:
        at = value
        for key in keys[:-1]:
            at = at[key] if isinstance(at, list) else at.setdefault(key, {})
        at[keys[-1]] = wanted
    text = json.dumps(value).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[end:] if is_tensors else text)


def _repeat(path: Path, parts: tuple[str, int, str]) -> None:
    head, n, tail = parts
    path.write_text(head * n + tail)


def _bytes(path: Path, changes: list[tuple[int, str]]) -> None:
    raw = bytearray(path.read_bytes())
    for offset, digits in changes:
        new = bytes.fromhex(digits)
        raw[offset : offset + len(new)] = new
    path.write_bytes(raw)


def _gone(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _sparse(path: Path, n_bytes: int) -> None:
    with path.open("ab") as file:
        file.truncate(n_bytes)


_CHANGES: dict[str, Any] = {
    "json": _json,
    "text": lambda path, text: path.write_text(text, errors="surrogateescape"),
    "repeat": _repeat,
    "fifo": lambda path, _: os.mkfifo(_gone(path)),
    "folder": lambda path, _: _gone(path).mkdir(),
    "link": lambda path, target: _gone(path).symlink_to(target),
    "sparse": _sparse,
    "missing": lambda path, _: _gone(path),
    "bytes": _bytes,
    "cut": lambda path, n: os.truncate(path, n),
}
