"""The ring as memory: its geometry, and its creation by the backend (ring.h)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbuffer import abi, model_file, processors
from ringbuffer.host_memory import available_bytes
from ringbuffer.name import RingError, RingName
from ringbuffer.words import member_of

PAGE = 4096
MAX_HEAP = 1 << 30  # tokens or records of one lease: offsets and their sums with lengths fit 32 bits
SHM_DIRECTORY = Path("/dev/shm")
MAX_EVENTS = 1 << 24  # records, so that the log is no larger than a few GiB


def event_record_bytes(page_size: int) -> int:
    """Bytes of a KV event's record, with the tokens of its page behind it, in whole lines of 64."""
    return -(-(abi.KvEvent.itemsize + 4 * page_size) // 64) * 64


# ---------------------------------------------------------------- geometry


def rounded_up(n: int, granule: int) -> int:
    return -(-n // granule) * granule


@dataclass(frozen=True)
class Geometry:
    """Sizes of a ring. `prompt_heap` is tokens and `output_heap` records of one lease; `kv_event_capacity`
    is records of the log of KV events, 0 for none, and `kv_event_bytes` of each (event_record_bytes).

    Raises ValueError when a size is out of its range or the slots do not divide evenly among the leases (R5).
    """

    n_slots: int
    n_leases: int
    prompt_heap: int
    output_heap: int
    kv_event_capacity: int = 0
    kv_event_bytes: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n_leases <= abi.MAX_LEASES:
            raise ValueError(f"n_leases is {self.n_leases}, it must be between 1 and {abi.MAX_LEASES}")
        share = self.n_leases * abi.SLOT_ALIGNMENT
        if self.n_slots < share or self.n_slots % share or self.n_slots > abi.MAX_SLOTS:
            raise ValueError(
                f"n_slots is {self.n_slots}, it must be a multiple of {share} for {self.n_leases} lease(s), "
                f"and at most {abi.MAX_SLOTS}"
            )
        for name, granule in (("prompt_heap", abi.PROMPT_GRANULE), ("output_heap", abi.OUTPUT_GRANULE)):
            size = getattr(self, name)
            if size % granule or not 0 < size <= MAX_HEAP:
                raise ValueError(
                    f"{name} is {size}, it must be a multiple of {granule} from {granule} to {MAX_HEAP}"
                )
        if not 0 <= self.kv_event_capacity <= MAX_EVENTS:
            raise ValueError(
                f"kv_event_capacity is {self.kv_event_capacity}, it must be between 0 and {MAX_EVENTS}"
            )

    @property
    def slots_per_lease(self) -> int:
        return self.n_slots // self.n_leases

    def lease_slots(self, lease: int) -> range:
        return range(lease * self.slots_per_lease, (lease + 1) * self.slots_per_lease)

    def _sections(self) -> Iterator[tuple[str, int]]:
        yield "header", PAGE
        yield "leases", abi.MAX_LEASES * abi.Lease.itemsize
        yield "lease_acks", abi.MAX_LEASES * abi.LeaseAck.itemsize
        yield "requests", self.n_slots * 8
        yield "descriptors", self.n_slots * abi.Descriptor.itemsize
        yield "progress", self.n_slots * abi.Progress.itemsize
        yield "prompts", self.n_leases * self.prompt_heap * 4
        yield "outputs", self.n_leases * self.output_heap * 8
        yield "kv_events", abi.KvEvents.itemsize + self.kv_event_capacity * self.kv_event_bytes

    def offsets(self) -> dict[str, int]:
        """Byte offset of each section, and the region's size under "end"."""
        found, offset = {}, 0
        for name, size in self._sections():
            found[name] = offset
            offset += rounded_up(size, PAGE)
        found["end"] = offset
        return found


@dataclass(frozen=True)
class ModelFacts:
    """What the header tells a frontend about the model and the limits it is served with."""

    fingerprint: bytes
    name: str
    device: str
    vocab_size: int
    max_context: int
    max_batch: int
    total_pages: int
    page_size: int
    max_grammar_words: int = 0  # of one request's grammar; 0: none is taken
    max_prefill_tokens: int = 0  # in one step; 0: not told
    priorities: bool = False  # the scheduler goes by those of requests
    eos_ids: tuple[int, ...] = ()  # tokens that end an answer
    processors: tuple[str, ...] = ()  # names of logits processors


def model_fingerprint(directory: Path) -> bytes:
    """SHA-256 over the files that both planes must agree on. Raises FileNotFoundError when one is missing,
    and ModelFileError when one is no such file."""
    digest = hashlib.sha256()
    for name in ("config.json", "tokenizer.json"):
        content = model_file.read_bytes(directory / name, model_file.MAX_TOKENIZER_BYTES)
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


# ---------------------------------------------------------------- the mapped region


class Region:
    """A mapped ring: numpy views of its sections. `close` unmaps it; the creator's also removes the name.

    The views are for set-up, tests and inspection. Words that publish must go through one aligned 8-byte
    store with release order (R2): on x86-64 an aligned numpy element store is one, elsewhere use the native
    library.
    """

    def __init__(self, path: Path, mapping: mmap.mmap, geometry: Geometry, name: RingName | None) -> None:
        self.path = path
        self.geometry = geometry
        self.mapping = mapping
        self._name = name
        at, g = geometry.offsets(), geometry
        whole = np.frombuffer(mapping, dtype=np.uint8)
        self.address: int = whole.ctypes.data
        self.n_bytes = at["end"]

        def view(name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
            count = int(np.prod(shape))
            return np.frombuffer(mapping, dtype=dtype, count=count, offset=at[name]).reshape(shape)

        self.header = view("header", abi.Header, (1,))
        self.leases = view("leases", abi.Lease, (abi.MAX_LEASES,))
        self.lease_acks = view("lease_acks", abi.LeaseAck, (abi.MAX_LEASES,))
        self.requests = view("requests", np.uint64, (g.n_slots,))
        self.descriptors = view("descriptors", abi.Descriptor, (g.n_slots,))
        self.progress = view("progress", abi.Progress, (g.n_slots,))
        self.prompts = view("prompts", np.uint32, (g.n_leases, g.prompt_heap))
        self.outputs = view("outputs", np.uint64, (g.n_leases, g.output_heap))
        self.kv_events = view("kv_events", abi.KvEvents, (1,))
        records = np.frombuffer(
            mapping, np.uint8, g.kv_event_capacity * g.kv_event_bytes, at["kv_events"] + abi.KvEvents.itemsize
        )
        self.kv_event_records = records.reshape(g.kv_event_capacity, g.kv_event_bytes)

    def set_control(self, control: abi.Control) -> None:
        self.header["control"][0] = int(control)

    def phase(self) -> abi.Phase | int:
        """The scheduler's phase; the word itself where it is no phase (member_of)."""
        return member_of(abi.Phase, int(self.header["phase"][0]))

    def heartbeat(self) -> int:
        return int(self.header["heartbeat"][0])

    def fault(self) -> tuple[int, int]:
        """The words of `abi.Fault` and of its detail, which fault.describe puts into a sentence."""
        return int(self.header["fault"][0]), int(self.header["fault_detail"][0])

    def fail(self, fault: abi.Fault, detail: int) -> None:
        """Tells of a scheduler that has died without a word: its reason first, then its phase (R2)."""
        self.header["fault_detail"][0] = detail
        self.header["fault"][0] = int(fault)
        self.header["phase"][0] = int(abi.Phase.FAILED)

    def stats(self) -> dict[str, int]:
        record = self.header["stats"][0]
        return {name: int(record[name]) for name in abi.Stats.names or ()}

    def close(self) -> None:
        for name in (*self.geometry.offsets(), "kv_event_records"):
            self.__dict__.pop(name, None)
        with contextlib.suppress(BufferError):  # a view lives on in the caller; the mapping goes with it
            self.mapping.close()
        if self._name is not None:
            self._name.close()


def ring_path(name: str) -> Path:
    """Where the ring called `name` lives. A name with a slash is taken as a path."""
    return Path(name) if "/" in name else SHM_DIRECTORY / f"blink-{name}"


def create(path: Path, geometry: Geometry, facts: ModelFacts) -> Region:
    """Creates the region, zero-filled but for its header; its name appears when it is whole.

    Raises RingError when a live backend serves under this name or the file cannot be made large enough.
    """
    name, n_bytes = RingName(path), geometry.offsets()["end"]
    try:
        if n_bytes > available_bytes():  # a /dev/shm that may have more would have other processes killed
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        os.posix_fallocate(name.descriptor, 0, n_bytes)
        region = Region(path, mmap.mmap(name.descriptor, n_bytes), geometry, name)
        region.header[:] = header_record(geometry, facts)
        name.publish()
    except OSError as error:
        name.close()
        raise RingError(
            f"cannot reserve {n_bytes / 2**20:.0f} MiB for the ring at {path} ({error.strerror}): "
            "lower --ring-memory, or enlarge /dev/shm"
        ) from error
    except RingError:
        name.close()
        raise
    return region


def header_record(geometry: Geometry, facts: ModelFacts) -> NDArray[np.void]:
    """The header [1] of a ring that this process creates, in phase STARTING."""
    header = np.zeros(1, dtype=abi.Header)
    at = geometry.offsets()
    values: dict[str, object] = {
        "magic": abi.MAGIC,
        "layout_hash": abi.RING_LAYOUT_HASH,
        "abi_version": abi.ABI_VERSION,
        "backend_pid": os.getpid(),
        "region_bytes": at["end"],
        **asdict(geometry),
        "vocab_size": facts.vocab_size,
        "max_context": facts.max_context,
        "max_batch": facts.max_batch,
        "total_pages": facts.total_pages,
        "page_size": facts.page_size,
        "max_grammar_words": facts.max_grammar_words,
        "max_prefill_tokens": facts.max_prefill_tokens,
        "priorities": facts.priorities,
        "n_eos": len(facts.eos_ids),
        "fingerprint": np.frombuffer(facts.fingerprint, dtype=np.uint8),
        "model_name": _padded(facts.name, 64),
        "device_name": _padded(facts.device, 64),
        "processor_names": np.frombuffer(processors.packed(facts.processors), dtype=np.uint8),
    }
    for section in at.keys() - {"header", "end"}:
        values[f"{section}_offset"] = at[section]
    for name, value in values.items():
        header[name][0] = value
    header["eos"][0, : len(facts.eos_ids)] = facts.eos_ids
    return header


def _padded(text: str, size: int) -> NDArray[np.uint8]:
    raw = text.encode()[:size].decode(errors="ignore").encode()
    return np.frombuffer(raw.ljust(size, b"\0"), dtype=np.uint8)
