"""Drives an engine step by step without the scheduler, for tests and scripts/bench/quality.py. The reference
engine and the CUDA engine share it.

    driver = EngineDriver(memory, limits, vocab_size)
    engine = SomeEngine(..., limits, driver.grid.shapes, driver.batch, ...)
    driver.run = engine.run                     # run(shape, set): runs the step to completion
    driver.start(row, prompt)                   # writes history and parameters
    tokens = driver.prefill([(row, 0, len(prompt))])
    tokens = driver.decode([row])
    tokens = driver.mixed([row], [(other, 0, 100)])
    tokens = driver.verify([(row, drafts)])     # with limits.max_drafts
    driver.travel(row)                          # its pages go to host memory and come back

Pages are handed out in shuffled order, so that an engine that ignores the block table fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gpu_backend import abi
from gpu_backend.engines.base import Limits, Memory
from gpu_backend.engines.batch import allocate_batch
from gpu_backend.engines.graph_grid import GraphGrid
from ringbuffer import abi as ring

Chunk = tuple[int, int, int]  # row, first position, end position
BatchSlot = tuple[int, int, int, int]  # row, first and last token in the step, what it emits


class EngineDriver:
    def __init__(
        self, memory: Memory, limits: Limits, vocab_size: int, eos: Sequence[int] = (), seed: int = 0
    ) -> None:
        self.memory = memory
        self.limits = limits
        self.grid = GraphGrid(limits)
        self.run: Callable[[int, int], None] | None = None
        self.batch = allocate_batch(memory, limits, self.grid.shapes, vocab_size, eos)
        self.tables, self.sets = np.asarray(self.batch.tables), np.asarray(self.batch.step_sets)
        self.tokens: list[list[int]] = [[] for _ in range(limits.max_batch)]  # prompt and answer of each row
        self.pages: list[list[int]] = [[] for _ in range(limits.max_batch)]
        self.free = list(range(limits.total_pages))
        random.Random(seed).shuffle(self.free)
        self.step_id = 0

    def start(self, row: int, prompt: Sequence[int], **params: float) -> None:
        """Makes `row` hold `prompt`, greedy unless `params` (fields of blink_descriptor) say otherwise."""
        self.free += self.pages[row]
        self.pages[row] = []
        self.tokens[row] = list(prompt)
        self._write_history(row, 0, prompt)
        descriptor = np.zeros((), ring.Descriptor)
        descriptor["prompt_tokens"] = len(prompt)
        descriptor["max_tokens"] = self.limits.max_context
        descriptor["top_p"] = descriptor["repetition_penalty"] = 1
        for name, value in params.items():
            if name == "stop_ids":
                descriptor["n_stop_ids"] = len(value)  # type: ignore[arg-type]
                descriptor["stop_ids"][: len(value)] = value  # type: ignore[arg-type]
            else:
                descriptor[name] = value
        self.memory.write(int(self.tables["params"]) + row * ring.Descriptor.itemsize, descriptor.tobytes())

    def prefill(self, chunks: Iterable[Chunk], shape: int | None = None) -> list[int | None]:
        """Feeds positions [first, end) of each chunk's row in one step.

        Returns for each chunk the sampled token, or None where the chunk does not end its row.
        """
        chunks = list(chunks)
        n_tokens = sum(end - first for _, first, end in chunks)
        return self._step(self.grid.prefill_shape(n_tokens) if shape is None else shape, chunks)

    def decode(self, rows: Sequence[int], shape: int | None = None) -> list[int | None]:
        """Feeds the last token of each row; its next tokens."""
        chunks = self._next(rows)
        return self._step(self.grid.decode_shape(len(rows)) if shape is None else shape, chunks, len(rows))

    def mixed(self, rows: Sequence[int], chunks: Sequence[Chunk]) -> list[int | None]:
        """Both in one step: what `decode` of rows and `prefill` of chunks return, one after the other."""
        all_chunks = [*self._next(rows), *chunks]
        n_tokens = sum(end - first for _, first, end in all_chunks)
        return self._step(self.grid.mixed_shape(n_tokens, len(all_chunks)), all_chunks, len(rows))

    def verify(self, drafts: Sequence[tuple[int, Sequence[int]]]) -> list[list[int]]:
        """Feeds the last token of each row and drafts of those behind it, in one step.

        Returns for each row what every one of these tokens is followed by. The row goes on with the drafts
        before the first that is something else than what its predecessor is followed by, and with that.
        """
        chunks, batch_slots = [], list[BatchSlot]()
        for row, of_row in drafts:
            known, first = len(self.tokens[row]), len(batch_slots)
            self._write_history(row, known, of_row)
            chunks.append((row, known - 1, known + len(of_row)))
            emits = [abi.Emit.CHECKED] * len(of_row) + [abi.Emit.TOKEN]
            batch_slots += [(row, first, first + i, emit) for i, emit in enumerate(emits)]
        shape = self.grid.verify_shape(len(batch_slots))
        sampled, out = self._sampled(shape, chunks, batch_slots, len(batch_slots)), list[list[int]]()
        for row, of_row in drafts:
            mine, sampled = sampled[: len(of_row) + 1], sampled[len(of_row) + 1 :]
            pairs = enumerate(zip(of_row, mine[:-1], strict=True))
            n_right = next((i for i, (draft, token) in pairs if draft != token), len(of_row))
            self.tokens[row] += mine[: n_right + 1]
            self._write_history(row, len(self.tokens[row]) - 1, self.tokens[row][-1:])
            out.append(mine)
        return out

    def _next(self, rows: Sequence[int]) -> list[Chunk]:
        return [(row, len(self.tokens[row]) - 1, len(self.tokens[row])) for row in rows]

    def _step(self, shape: int, chunks: list[Chunk], n_decode: int = 0) -> list[int | None]:
        ends = np.cumsum([end - first for _, first, end in chunks]).tolist()
        firsts = [0, *ends[:-1]]
        emits = [int(end == len(self.tokens[row])) for row, _, end in chunks]
        slots = zip(chunks, firsts, ends, emits, strict=True)
        batch_slots = [(row, first, end - 1, emit) for (row, _, _), first, end, emit in slots]
        sampled = self._sampled(shape, chunks, batch_slots, n_decode)
        out: list[int | None] = []
        for (row, _, _), emit, token in zip(chunks, emits, sampled, strict=True):
            if emit:
                self.tokens[row].append(token)
            out.append(token if emit else None)
        return out

    def _sampled(
        self, shape: int, chunks: list[Chunk], batch_slots: list[BatchSlot], n_decode: int
    ) -> list[int]:
        """What the batch slots of a step of these tokens have in out_token."""
        index = self._next_set()
        for row, _, end in chunks:
            self._grow(row, end)
        self._fill(index, shape, chunks, batch_slots, n_decode)
        self._run(shape, index)
        tokens = self.memory.read(int(self.sets[index]["out_token"]), 4 * len(batch_slots))
        return np.frombuffer(tokens, "<u4").tolist()  # type: ignore[no-any-return]

    def copy(self, pages: Iterable[tuple[int, int]]) -> None:
        """From the first page of each pair to the second; from limits.total_pages on they are the host's."""
        pages = list(pages)
        index, shape = self._next_set(), self.grid.copy_shape
        assert len(pages) <= self.grid.shapes[shape].tokens
        self._write_u32(int(self.sets[index]["token_sequence"]), [page for page, _ in pages])
        self._write_u32(int(self.sets[index]["token_position"]), [page for _, page in pages])
        self._write_head(index, shape, len(pages), 0, 0)
        self._run(shape, index)

    def travel(self, row: int) -> None:
        """The row's pages go to host memory, what was theirs is overwritten, and they come back to others."""
        left, n = self.pages[row], len(self.pages[row])
        assert 2 * n <= self.limits.host_pages
        hosts = [self.limits.total_pages + page for page in range(self.limits.host_pages)]
        there, empty = hosts[n - 1 :: -1], hosts[n : 2 * n]
        found = [self.free.pop() for _ in left]
        self.copy(zip(left, there, strict=True))
        self.copy(zip(empty, left, strict=True))
        self.copy(zip(there, found, strict=True))
        self.free += left
        self.pages[row] = found

    def _next_set(self) -> int:
        self.step_id += 1
        return self.step_id % abi.STEP_SETS

    def _run(self, shape: int, index: int) -> None:
        assert self.run is not None, "set driver.run first"
        self.run(shape, index)
        self._check(index)

    def _grow(self, row: int, n_tokens: int) -> None:
        """Gives the row enough pages for `n_tokens` positions."""
        while len(self.pages[row]) * self.limits.page_size < n_tokens:
            self.pages[row].append(self.free.pop())
        at = int(self.tables["block_table"]) + 4 * row * self.limits.pages_per_sequence
        self._write_u32(at, self.pages[row])

    def _fill(
        self, index: int, shape: int, chunks: list[Chunk], batch_slots: list[BatchSlot], n_decode: int
    ) -> None:
        capacity = self.grid.shapes[shape]
        step_set = self.sets[index]
        rows = [row for row, first, end in chunks for _ in range(first, end)]
        positions = [p for _, first, end in chunks for p in range(first, end)]
        assert len(rows) <= capacity.tokens
        assert len(batch_slots) <= capacity.batch_slots
        padding = [abi.NO_SEQUENCE] * (capacity.tokens - len(rows))
        self._write_u32(int(step_set["token_sequence"]), rows + padding)
        self._write_u32(int(step_set["token_position"]), positions)
        names = ("batch_sequence", "batch_first", "batch_last", "batch_emit")
        for name, values in zip(names, zip(*batch_slots, strict=True), strict=True):
            self._write_u32(int(step_set[name]), values)
        self._write_head(index, shape, len(rows), len(batch_slots), n_decode)

    def _write_head(self, index: int, shape: int, n_tokens: int, batch_size: int, n_decode: int) -> None:
        step_set = self.sets[index]
        head = np.frombuffer(
            bytearray(self.memory.read(int(step_set["head"]), abi.StepHead.itemsize)), abi.StepHead
        )[0]
        head["id"] = self.step_id
        head["kind"] = self.grid.shapes[shape].kind
        head["shape"] = shape
        head["n_tokens"] = n_tokens
        head["batch_size"] = batch_size
        head["n_decode"] = n_decode
        self.memory.write(int(step_set["head"]), head.tobytes())

    def _check(self, index: int) -> None:
        """The step was published and its gate did not give up."""
        head = np.frombuffer(
            self.memory.read(int(self.sets[index]["head"]), abi.StepHead.itemsize), abi.StepHead
        )[0]
        completed = int.from_bytes(self.memory.read(int(self.tables["completed"]), 8), "little")
        assert head["fault"] == 0
        assert head["slots_done"] == 0
        assert completed == self.step_id
        assert head["done_ns"] >= head["start_ns"]

    def history(self, row: int) -> list[int]:
        """The row's history as the engine has it, as long as the driver knows it to be."""
        at = int(self.tables["history"]) + 4 * row * self.limits.max_context
        n = min(len(self.tokens[row]), self.limits.max_context)
        return np.frombuffer(self.memory.read(at, 4 * n), "<u4").tolist()  # type: ignore[no-any-return]

    def _write_history(self, row: int, position: int, tokens: Sequence[int]) -> None:
        at = row * self.limits.max_context + position
        self._write_u32(int(self.tables["history"]) + 4 * at, tokens)

    def _write_u32(self, address: int, values: Any) -> None:
        data = np.asarray(values, dtype="<u4").tobytes()
        if data:
            self.memory.write(address, data)
