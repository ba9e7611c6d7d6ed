"""The training corpus: documents of synthetic items as token rows, in buckets of equal width.

A document is one completion or one chat and fills one row, padded to its bucket's width: attention never sees
another document, exactly as in serving. Only answers (with their end token) carry loss. An answer of n tokens
has the weight 1 / sqrt(n) a token, so that "579" counts beside an answer of a thousand tokens.
"""

import multiprocessing
import random
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from demo_model import tasks, tokenizer, words

WIDTHS = (32, 80, 160, 320, 768, 1600)  # inputs per row; a row holds one token more
BATCH = 128  # documents encoded at a time
SHARDS = 64  # independently seeded parts of the corpus
WEIGHT_SCALE = 255.0  # weights are stored as uint8: 255 is a weight of 1

#: Relative number of documents per task.
MIXTURE = {
    "add": 14,
    "subtract": 14,
    "multiply": 6,
    "count": 6,
    "count_long": 1.5,
    "table": 2,
    "sort_words": 7,
    "sort_numbers": 7,
    "reverse": 5,
    "spell": 5,
    "copy": 7,
    "unicode": 4,
    "repeat": 3,
    "fact": 5,
    "identity": 1.5,
    "lookup": 4,
    "lookup_long": 2,
    "story": 3,
    "memory": 4,
}
CHAT_MIXTURE = {
    **MIXTURE,
    "count_long": 0,
    "table": 0,
    "lookup_long": 0,
    "memory": 0,
    "story": 1,
    "repeat": 1,
}

Segment = tuple[str, bool]  # text, carries loss
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bucket:
    """Rows of one width. ids: uint16 [rows, width + 1]; weights: uint8, same shape, per target token."""

    ids: Array
    weights: Array


def document(rng: random.Random) -> list[Segment]:
    """One training document: a completion, a chat of one item, or a chat of several."""
    kind = rng.random()
    if kind < 0.4:
        item = _item(rng, MIXTURE)
        return [
            (tokenizer.BOS, False),
            (item.prompt, False),
            (f" {item.answer}", True),
            (tokenizer.EOS, True),
        ]
    if kind < 0.75:
        return _chat(rng, [_item(rng, MIXTURE)])
    return _chat(rng, [_item(rng, CHAT_MIXTURE) for _ in range(rng.randrange(2, 6))])


def _item(rng: random.Random, mixture: dict[str, float]) -> tasks.Item:
    return tasks.sample(rng.choices(list(mixture), list(mixture.values()))[0], rng, "train")


def _chat(rng: random.Random, items: list[tasks.Item]) -> list[Segment]:
    messages = []
    if rng.random() < 0.15:
        messages.append({"role": "system", "content": rng.choice(words.SYSTEM_PROMPTS)})
    for item in items:
        messages += [*item.messages, {"role": "assistant", "content": item.answer}]
    segments: list[Segment] = [(tokenizer.BOS, False)]
    for message in messages:
        answer = message["role"] == "assistant"
        segments += [(f"<|{message['role']}|>", False), (message["content"], answer), (tokenizer.END, answer)]
    return segments


def sample_texts(count: int, seed: int) -> list[str]:
    """Texts of training documents, without special tokens, to train the tokenizer on."""
    rng = random.Random(f"tokenizer {seed}")
    texts = [text for _ in range(count) for text, _ in document(rng) if text not in tokenizer.SPECIAL_TOKENS]
    return texts + [f" {' '.join((*words.WORDS, *words.NAMES))}"] * (count // 10)


def encode(tokens: Tokenizer, documents: list[list[Segment]]) -> list[tuple[Array, Array]]:
    """(ids uint16, weights uint8) of each document."""
    flat = [text for segments in documents for text, _ in segments]
    encodings = iter(tokens.encode_batch_fast(flat, add_special_tokens=False))
    rows = []
    for segments in documents:
        ids: list[int] = []
        weights: list[int] = []
        for text, answer in segments:
            piece = next(encodings).ids
            ids += piece
            if not answer:
                weights += [0] * len(piece)
            elif text in (tokenizer.END, tokenizer.EOS):
                weights.append(weights[-1])
            else:
                weights += [max(1, round(WEIGHT_SCALE / (len(piece) + 1) ** 0.5))] * len(piece)
        rows.append((np.array(ids, np.uint16), np.array(weights, np.uint8)))
    return rows


def shard(tokenizer_json: str, seed: str, token_count: int) -> list[Bucket]:
    """Generate about `token_count` tokens of documents, one bucket per width."""
    tokens, rng = Tokenizer.from_str(tokenizer_json), random.Random(seed)
    pad = tokenizer.special_id(tokens, tokenizer.PAD)
    ids: list[list[Array]] = [[] for _ in WIDTHS]
    weights: list[list[Array]] = [[] for _ in WIDTHS]
    made = 0
    while made < token_count:
        for row, weight in encode(tokens, [document(rng) for _ in range(BATCH)]):
            which = next((i for i, width in enumerate(WIDTHS) if len(row) <= width + 1), None)
            if which is None:
                raise ValueError(f"a document of {len(row)} tokens does not fit {WIDTHS[-1]}")
            room = WIDTHS[which] + 1 - len(row)
            ids[which].append(np.pad(row, (0, room), constant_values=pad))
            weights[which].append(np.pad(weight, (0, room)))
            made += len(row)
    return [
        Bucket(
            np.array(rows, np.uint16).reshape(-1, width + 1),
            np.array(values, np.uint8).reshape(-1, width + 1),
        )
        for width, rows, values in zip(WIDTHS, ids, weights, strict=True)
    ]


def build(tokens: Tokenizer, token_count: int, seed: int, workers: int) -> list[Bucket]:
    """Generate `token_count` tokens in `workers` processes; the seed alone fixes the result."""
    text = tokens.to_str()
    jobs = [(text, f"{seed} {i}", token_count // SHARDS) for i in range(SHARDS)]
    started, parts = time.monotonic(), []
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        handles = [pool.apply_async(shard, job) for job in jobs]
        for i, handle in enumerate(handles):
            parts.append(handle.get(timeout=600))
            if (i + 1) % 16 == 0:
                print(f"corpus: {i + 1}/{SHARDS} shards, {time.monotonic() - started:.1f} s", file=sys.stderr)
    return [
        Bucket(np.concatenate([p[i].ids for p in parts]), np.concatenate([p[i].weights for p in parts]))
        for i in range(len(WIDTHS))
    ]
