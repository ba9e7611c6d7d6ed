"""The header of a safetensors file, which says what each tensor is and where it lies.

It comes from elsewhere, and may have 100 MB: nothing is made of what nobody asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from ringbuffer.model_file import parse_json, shown

MAX_HEADER_BYTES = 100_000_000  # as the format's own library allows, of which metadata may be the most
MAX_TENSORS_BYTES = 32 << 20  # of what is no metadata
MAX_TENSORS = 1 << 19  # of a checkpoint, in all of its files; large mixtures of experts have some 100,000
MAX_VALUE_BYTES = 4096  # of a type, a shape or a place, of which honest ones have some tens
KEYS = ("dtype", "shape", "data_offsets")
METADATA = "__metadata__"
_NONE = msgspec.Raw(b"")


class _Head(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.field(name=METADATA, default=_NONE)


_head = msgspec.json.Decoder(_Head)
_place = msgspec.json.Decoder(tuple[int, int])


@dataclass(frozen=True)
class Info:
    """What the header says of a tensor, unchecked."""

    dtype: Any
    shape: Any
    data_offsets: Any


class Header:
    """The tensors that a header names. `overlapping` are the names of those whose bytes are those of another
    one, too.

    Raises ValueError for what is no header, a name that it has twice, which the format forbids (which one is
    meant?), and more than `most` tensors.
    """

    def __init__(self, text: memoryview, most: int = MAX_TENSORS) -> None:
        """`text` must stay as it is: values are read from it when they are asked for."""
        try:
            self._entries = _entries(text, most)
        except RecursionError:
            raise ValueError("it nests too deeply") from None
        self.overlapping = _overlapping(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def info(self, name: str) -> Info:
        """Of a tensor that it names. Raises ValueError."""
        entry = self._entries[name]
        return Info(*(_value(key, getattr(entry, key)) for key in KEYS))


def _value(key: str, raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    if len(text) > MAX_VALUE_BYTES:
        raise ValueError(f"its {key} has {len(text)} bytes, at most {MAX_VALUE_BYTES} are read")
    return parse_json(text)


def _entries(text: memoryview, most: int) -> dict[str, Any]:
    """What the header says of each tensor, by name."""
    header, metadata = bytes(text), memoryview(_head.decode(text).metadata)

    def more_than(most: int, what: bytes) -> bool:
        """Whether it stands more often outside of the metadata, of which a copy would be large."""
        count = header.count(what)
        return count > most and count - bytes(metadata).count(what) > most

    if len(header) - len(metadata) > MAX_TENSORS_BYTES:
        raise ValueError(f"it has more than {MAX_TENSORS_BYTES >> 20} MiB beside its metadata")
    # Each tensor is an object, so that braces bound how many objects the decoder makes.
    if more_than(most + 1, b"{"):
        raise ValueError(f"it has more tensors than the {most} that a checkpoint may still have")
    in_order: list[Any] = []
    entry = msgspec.defstruct(
        "_Entry",
        [(key, msgspec.Raw, _NONE) for key in KEYS],
        namespace={"__post_init__": in_order.append},
        gc=False,
    )
    entries: dict[str, Any] = msgspec.json.decode(text, type=dict[str, entry])  # type: ignore[valid-type]
    # The later of two replaces the first, and stands in its place.
    for made, (name, kept) in zip(in_order, entries.items(), strict=False):
        if made is not kept:
            raise ValueError(f"it has {shown(name)} twice")
    entries.pop(METADATA, None)
    for key in KEYS:
        if more_than(len(entries) + (key in entries), f'"{key}"'.encode()):
            raise ValueError(f"a tensor has {key} twice")
    return entries


def _overlapping(entries: dict[str, Any]) -> set[str]:
    spans = []
    for name, entry in entries.items():
        if len(memoryview(entry.data_offsets)) <= MAX_VALUE_BYTES:
            try:
                spans.append((*_place.decode(entry.data_offsets), name))
            except (msgspec.DecodeError, RecursionError):  # refused where the tensor is asked for
                continue
    overlapping: set[str] = set()
    farthest, whose = 0, ""
    for begin, end, name in sorted(spans):
        if begin < min(farthest, end):
            overlapping |= {whose, name}
        if end > farthest:
            farthest, whose = end, name
    return overlapping
