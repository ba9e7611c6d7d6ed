"""The vocabulary for OpenAI's library, which would download it: from the tokenizer.json of the model instead.

The library reads `o200k_base.tiktoken`, which has a line for each token, its bytes in base64 and its rank. It
checks the file's SHA-256. In a published tokenizer.json the ids of ordinary tokens are these ranks.
"""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path
from typing import Any

from openai_harmony import HarmonyEncoding, HarmonyEncodingName, load_harmony_encoding

from ringbuffer.model_file import MAX_TOKENIZER_BYTES, read_json
from ringbuffer.token_bytes import bytes_by_decoder

FOLDER = "TIKTOKEN_ENCODINGS_BASE"  # the variable that says where the library finds the file
FILE = "o200k_base.tiktoken"
N_TOKENS = 199_998  # before the special ones


def load_encoding(directory: Path) -> HarmonyEncoding:
    """Writes a file, which it removes again. Raises ValueError where the vocabulary is another one."""
    ranks = _tiktoken(read_json(directory / "tokenizer.json", MAX_TOKENIZER_BYTES))
    with tempfile.TemporaryDirectory(prefix="blink-harmony-") as folder:
        (Path(folder) / FILE).write_bytes(ranks)
        os.environ[FOLDER] = folder  # else the library looks for it on the network
        try:
            encoding: HarmonyEncoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
            return encoding
        except Exception as error:
            raise ValueError(
                f"{directory / 'tokenizer.json'} has the special tokens of o200k_harmony, but other ordinary "
                f"ones: {error}"
            ) from error


def _tiktoken(tokenizer: dict[str, Any]) -> bytes:
    """Raises ValueError where a token has no bytes or the ids are none of ranks."""
    token_bytes = bytes_by_decoder(tokenizer.get("decoder"))
    try:
        vocabulary = tokenizer["model"]["vocab"]
        by_rank = sorted((rank, text) for text, rank in vocabulary.items() if rank < N_TOKENS)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("tokenizer.json has no vocabulary of texts and ids") from error
    if token_bytes is None:
        raise ValueError("the decoder of tokenizer.json does not say which bytes a token has")
    lines = (f"{base64.b64encode(token_bytes(text)).decode()} {rank}\n" for rank, text in by_rank)
    return "".join(lines).encode()
