"""What the backend's prefix cache holds, followed as it changes (ringbuffer/README.md, "KV events").

For whoever routes requests to the backend that has most of their prompt already. The names of the events and
of their fields are vLLM's.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nic_frontend.transport.base import Transport, read_header
from ringbuffer import abi
from ringbuffer.abi import KvEventKind
from ringbuffer.words import event_word, unpack_event_word

MAX_ATTACHMENT = 0xFFFF
RECORDS_READ = 4096  # at most, by one `poll`
NO_SALT = bytes(16)
REPLACED = "another reader has attached to the backend's KV events"


class KvEventError(RuntimeError):
    """The events cannot be followed, or not any further; the message says why."""


@dataclass(frozen=True)
class BlockStored:
    """A block can be found from now on. It comes behind its parent."""

    block_hash: int  # 64 bits (block_hash)
    parent_block_hash: int | None  # None: a prompt begins with it
    token_ids: tuple[int, ...]  # as many as the backend's page size
    cache_salt: bytes | None  # 16 bytes: only requests with this salt find it; None: all


@dataclass(frozen=True)
class BlockRemoved:
    """A block cannot be found any more. It comes behind those that followed the block."""

    block_hash: int


@dataclass(frozen=True)
class AllBlocksCleared:
    """Forget all blocks: what there is comes anew."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


def block_hash(parent: int | None, salt: bytes, tokens: NDArray[np.uint32]) -> int:
    """The first 8 bytes, little-endian, of SHA-256 over the parent's hash, or the 16 bytes of the salt where
    there is no parent, and the tokens: all little-endian.

    So it stands for the salt and all tokens from the prompt's beginning, at every backend and after a
    restart.
    """
    before = salt if parent is None else parent.to_bytes(8, "little")
    digest = hashlib.sha256(before + tokens.astype("<u4").tobytes()).digest()
    return int.from_bytes(digest[:8], "little")


class BlockTree:
    """The blocks that can be found, from records in the order in which the scheduler wrote them.

    Raises nothing: a record whose parent is not there is of a block that nobody can find, but while
    everything is told anew, its parent may still come.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._hashes: dict[int, int] = {}  # by the scheduler's name of the block
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        self._waiting: dict[int, dict[int, np.void]] = {}  # by the parent that is missing, then by the block
        self._awaited: dict[int, int] = {}  # the parent that a block waits for
        self.complete = False

    def __len__(self) -> int:
        return len(self._hashes)

    def apply(self, record: np.void) -> Iterator[KvEvent]:
        kind, block = int(record["kind"]), int(record["block"])
        if kind == KvEventKind.CLEARED:
            self._forget()
            yield AllBlocksCleared()
        elif kind == KvEventKind.COMPLETE:
            self.complete = True
            self._waiting.clear()
            self._awaited.clear()
        elif kind == KvEventKind.REMOVED:
            if (parent := self._awaited.pop(block, None)) is not None:
                del self._waiting[parent][block]
            yield from self._remove(block)
        elif kind == KvEventKind.STORED:
            yield from self._store(block, record)

    def _store(self, block: int, record: np.void) -> Iterator[BlockStored]:
        parent = int(record["parent"])
        if parent != abi.NO_BLOCK and parent not in self._hashes:
            if not self.complete:
                self._waiting.setdefault(parent, {})[block] = record
                self._awaited[block] = parent
            return
        ready = [(block, record)]
        while ready:
            block, record = ready.pop()
            yield self._add(block, record)
            for child, waiting in self._waiting.pop(block, {}).items():
                del self._awaited[child]
                ready.append((child, waiting))

    def _add(self, block: int, record: np.void) -> BlockStored:
        parent = int(record["parent"])
        parent_hash = self._hashes.get(parent)
        salt, tokens = record["salt"].tobytes(), record["tokens"]
        self._hashes[block] = block_hash(parent_hash, salt, tokens)
        if parent_hash is not None:
            self._parents[block] = parent
            self._children.setdefault(parent, []).append(block)
        return BlockStored(
            self._hashes[block], parent_hash, tuple(tokens.tolist()), None if salt == NO_SALT else salt
        )

    def _remove(self, block: int) -> Iterator[BlockRemoved]:
        if block not in self._hashes:
            return
        if (parent := self._parents.get(block)) is not None:
            self._children[parent].remove(block)
        found = [block]
        for ancestor in found:  # grows meanwhile
            found += self._children.pop(ancestor, [])
        for gone in reversed(found):
            self._parents.pop(gone, None)
            yield BlockRemoved(self._hashes.pop(gone))


class KvEventReader:
    """Follows the prefix cache of the backend behind `transport`, which stays the caller's.

    There is one reader of a ring: the one that attached last. Call `poll` again and again, from one thread:
    the scheduler waits for nobody, but a reader that falls behind by more than the ring and the scheduler's
    queue hold is told everything anew. Raises KvEventError when the backend keeps no events.
    """

    def __init__(self, transport: Transport) -> None:
        header = read_header(transport)
        self._transport = transport
        self._capacity, size = int(header["kv_event_capacity"]), int(header["kv_event_bytes"])
        if self._capacity == 0:
            raise KvEventError("this backend keeps no KV events: start it with --kv-events N")
        self.block_size = int(header["page_size"])  # tokens
        self._at = int(header["kv_events_offset"])
        names = [*(abi.KvEvent.names or ()), "tokens"]
        fields = [abi.KvEvent.fields[name] for name in names[:-1]]  # type: ignore[index]
        self._record = np.dtype(
            {
                "names": names,
                "formats": [field[0] for field in fields] + [(np.uint32, (self.block_size,))],
                "offsets": [field[1] for field in fields] + [abi.KvEvent.itemsize],
                "itemsize": size,
            }
        )
        self._tree = BlockTree()
        self._read = 0
        reader, written = self._words()
        taken = {0, unpack_event_word(reader)[0], unpack_event_word(written)[0]}
        self._attachment = 0
        while self._attachment in taken:
            self._attachment = 1 + secrets.randbelow(MAX_ATTACHMENT)
        self._publish()

    @property
    def complete(self) -> bool:
        """Whether everything has been told; not before, the absence of a block means nothing."""
        return self._tree.complete

    def __len__(self) -> int:
        """How many blocks can be found, as far as was polled."""
        return len(self._tree)

    def poll(self) -> list[KvEvent]:
        """What has happened since; nothing is waited for.

        Raises KvEventError when another reader has attached, and TransportError while the link is down.
        """
        reader, written = self._words()
        if unpack_event_word(reader)[0] != self._attachment:
            raise KvEventError(REPLACED)
        attachment, count = unpack_event_word(written)
        if attachment != self._attachment or count == self._read:
            return []  # the scheduler has not seen this reader yet, or has told nothing new
        end = min(count, self._read + RECORDS_READ)
        found: list[KvEvent] = []
        while self._read < end:
            for record in self._records(end - self._read):
                if int(record["word"]) != event_word(self._attachment, self._read):
                    raise KvEventError(REPLACED)
                found += self._tree.apply(record)
                self._read += 1
        self._publish()
        return found

    def _records(self, most: int) -> NDArray[np.void]:
        """The next records, as far as they stand side by side."""
        first, size = self._read % self._capacity, self._record.itemsize
        n = min(most, self._capacity - first)
        raw = self._transport.read(self._at + abi.KvEvents.itemsize + first * size, n * size)
        return np.frombuffer(raw, self._record)

    def close(self) -> None:
        """Nothing is kept for this reader any more."""
        if unpack_event_word(self._words()[0])[0] == self._attachment:
            self._transport.publish(self._at + abi.KvEvents.fields["reader"][1], 0)  # type: ignore[index]

    def _words(self) -> tuple[int, int]:
        words = np.frombuffer(self._transport.read(self._at, abi.KvEvents.itemsize), abi.KvEvents)[0]
        return int(words["reader"]), int(words["written"])

    def _publish(self) -> None:
        word = event_word(self._attachment, self._read)
        self._transport.publish(self._at + abi.KvEvents.fields["reader"][1], word)  # type: ignore[index]
