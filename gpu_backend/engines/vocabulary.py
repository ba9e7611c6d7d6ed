"""The bytes of a vocabulary's tokens in an engine's memory, for the sampler (blink_vocabulary)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import MOST_PLAIN, MOST_TOKEN_BYTES, NOT_PLAIN, VOCAB_PARTS, TokenGroup
from gpu_backend.arithmetic import ceil_div
from gpu_backend.engines.base import Batch, Memory
from gpu_backend.engines.token_maps import CLASS_OF_BYTE, MAP_TOKENS, SETS, first_and_rest, maps
from gpu_backend.kernel_abi.vocab_slice import SAMPLE_BLOCKS, SAMPLE_WARPS
from ringbuffer.token_bytes import answer_bytes

LANES = 32
MARKED = frozenset('"\\')
TOLD_PREFIX = 4  # bytes

assert SAMPLE_BLOCKS == VOCAB_PARTS


def store_vocabulary(memory: Memory, batch: Batch, directory: Path) -> None:
    """Puts the bytes of the tokens of the model in `directory` into `memory`, and names them in `batch`."""
    tables: Any = batch.tables
    table = answer_bytes(directory, int(tables["vocab_size"]))
    assert table is not None, "its vocabulary is not of bytes, and there are grammars"
    for name, array in vocabulary_arrays(table).items():
        address = memory.allocate(max(1, array.nbytes))
        memory.write(address, array.tobytes())
        tables["vocabulary"][name] = address


def part_size(vocab_size: int) -> int:
    """Tokens of one of the vocabulary's parts: what a block of a largest cluster samples from."""
    return LANES * SAMPLE_WARPS * ceil_div(vocab_size, LANES * SAMPLE_WARPS * SAMPLE_BLOCKS)


def plain_characters(raw: bytes) -> int:
    """How many plain characters `raw` is; 0 where it has anything else, or more than are told."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return 0
    if len(text) > MOST_PLAIN or not MARKED.isdisjoint(text) or min(text, default=" ") < " ":
        return 0
    return len(text)


def vocabulary_arrays(table: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """The members of blink_vocabulary for tokens with these bytes."""
    table = [raw if len(raw) <= MOST_TOKEN_BYTES else b"" for raw in table]
    first = np.zeros(len(table) + 1, np.uint32)
    np.cumsum([len(raw) for raw in table], out=first[1:])
    data = np.frombuffer(b"".join(table), np.uint8)
    plain = np.zeros(ceil_div(len(table), MAP_TOKENS) * MAP_TOKENS, np.uint8)
    plain[: len(table)] = [plain_characters(raw) for raw in table]
    sets = first_and_rest(data, first)
    groups: list[tuple[int, int, int, int, int, int, list[int]]] = []
    tokens: list[NDArray[np.uint32]] = []
    words: list[NDArray[np.uint32]] = [np.zeros(0, np.uint32)]
    part_groups, at = [0], 0
    for part in parts(len(table)):
        for members in grouped(part, table, plain):
            rows = [table[token] for token in members]
            most_plain = int(plain[members].max()) if plain[members[0]] else NOT_PLAIN
            classes = int(np.bitwise_or.reduce(sets[1, members]))
            prefix = shared_prefix(rows[0], rows[-1])[:TOLD_PREFIX]  # they are in order: of the others, too
            told = list(prefix.ljust(TOLD_PREFIX, b"\0"))
            groups.append((len(prefix), most_plain, int(CLASS_OF_BYTE[prefix[0]]), 0, classes, at, told))
            rests = side_by_side([raw[len(prefix) :] for raw in rows])
            tokens.append(np.stack([packed_tokens(members, table), rests[:LANES]], axis=1))
            words.append(rests[LANES:])
            at += len(words[-1])
        part_groups.append(len(groups))
    return {
        "first": first,
        "bytes": data,
        "plain": plain,
        "class_of_byte": CLASS_OF_BYTE,
        "class_sets": SETS,
        "maps": maps(sets, plain),
        "groups": np.array(groups, TokenGroup),
        "part_groups": np.array(part_groups, np.uint32),
        "group_tokens": np.array(tokens, np.uint32),
        "group_words": np.concatenate(words),
    }


def parts(vocab_size: int) -> Iterator[range]:
    size = part_size(vocab_size)
    for part in range(VOCAB_PARTS):
        yield range(min(vocab_size, part * size), min(vocab_size, (part + 1) * size))


def grouped(part: range, table: Sequence[bytes], plain: NDArray[np.uint8]) -> Iterator[list[int]]:
    """The tokens of a part that have bytes, in groups of neighbours."""
    there = sorted((token for token in part if table[token]), key=table.__getitem__)
    for kind in (True, False):
        alike = (token for token in there if (plain[token] > 0) == kind)
        for _, found in groupby(alike, key=lambda token: table[token][0]):
            members = list(found)
            yield from (members[first : first + LANES] for first in range(0, len(members), LANES))


def shared_prefix(a: bytes, b: bytes) -> bytes:
    n = next((i for i, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), min(len(a), len(b)))
    return a[:n]


def packed_tokens(members: list[int], table: Sequence[bytes]) -> NDArray[np.uint32]:
    tokens = np.zeros(LANES, np.uint32)
    tokens[: len(members)] = [token | len(table[token]) << 20 for token in members]
    return tokens


def side_by_side(rows: list[bytes]) -> NDArray[np.uint32]:
    """The words of each row, each a lane's: all lanes' first words, all lanes' second words, and so on."""
    n_words = max(1, ceil_div(max(map(len, rows)), 4))
    packed = b"".join(raw.ljust(4 * n_words, b"\0") for raw in rows).ljust(4 * n_words * LANES, b"\0")
    return np.frombuffer(packed, "<u4").reshape(LANES, n_words).T.reshape(-1)
