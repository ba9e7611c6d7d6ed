"""A gpt-oss model without weights: its tokenizer.json as it is published, made of OpenAI's vocabulary."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from needs import skip_if_missing, with_need

from nic_frontend.harmony.marks import IDS
from ringbuffer.token_bytes import byte_level_alphabet

VOCAB_SIZE = 201_088
RESERVED = {199_998: "<|startoftext|>", 199_999: "<|endoftext|>", 200_018: "<|endofprompt|>"}
ENDS = [200_002, 199_999, 200_012]  # eos_token_id of generation_config.json
# As in the published file, and in OpenAI's tiktoken.
LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join((
    rf"{LETTERS}*{SMALL}+{ENDINGS}", rf"{LETTERS}+{SMALL}*{ENDINGS}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
))  # fmt: skip


def read_ranks() -> dict[bytes, int]:
    """OpenAI's vocabulary. Skips the test where it was not fetched."""
    done = subprocess.run(
        with_need("o200k", "sh", "-c", 'cat "$BLINK_O200K"'),
        capture_output=True, text=True, env={**os.environ, "BLINK_NO_DOWNLOADS": "1"}, check=False,
    )  # fmt: skip
    skip_if_missing("o200k", done)
    assert done.returncode == 0, done.stderr
    lines = (line.split(" ") for line in done.stdout.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def write_gpt_oss(directory: Path, ranks: dict[bytes, int]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(_tokenizer(ranks), ensure_ascii=False))
    (directory / "config.json").write_text(json.dumps({"model_type": "gpt_oss", "vocab_size": VOCAB_SIZE}))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|return|>"}))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ENDS}))
    return directory


def _tokenizer(ranks: dict[bytes, int]) -> dict[str, Any]:
    alphabet = {byte: text for text, byte in byte_level_alphabet().items()}
    texts = {token: "".join(alphabet[byte] for byte in token) for token in ranks}
    names = {token: text for text, token in IDS.items()} | RESERVED
    added = range(199_998, 200_019)
    special = {token: names.get(token, f"<|reserved_{token}|>") for token in added}
    pre = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
        "vocab": {texts[token]: rank for token, rank in ranks.items()},
        "merges": [[texts[left], texts[right]] for left, right in _merges(ranks)],
    }  # fmt: skip
    fixed = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": token, "content": text, **fixed} for token, text in special.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [pre, byte_level]},
        "post_processor": byte_level,
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": model,
    }  # fmt: skip


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """All pairs that make a token, as transformers writes them of a tiktoken file."""
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        parts = [(token[:n], token[n:]) for n in range(1, len(token))]
        pairs = [(left, right) for left, right in parts if left in ranks and right in ranks]
        merges += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return merges
