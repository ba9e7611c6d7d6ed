"""The stored responses: what is written into their database, and what is read from it. All of it blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nic_frontend.store.file import StoreFile
from nic_frontend.store.records import (
    LOST,
    OPEN,
    AncestorGone,
    Bounds,
    Ending,
    Item,
    NoRoom,
    NotCancelled,
    NotContinued,
    Page,
    Record,
    TooLong,
    Unknown,
)

LONGEST_CHAIN = 4096  # responses that continue each other
OVERHEAD = 512  # bytes that a response or an item takes beside its content, in rows and indices
SWEPT = 100  # responses that are deleted at once, and the bytes: others have their turns between such rounds
SWEPT_BYTES = 8 << 20
TOUCHED_S = 60.0  # how far `used` may lie behind
IDS = 500  # that are looked up at once
MAY_GO = f"(status NOT IN {OPEN} OR until < :now)"  # nobody computes it any more

CHAIN = """
WITH RECURSIVE chain (number, previous, status, said, depth) AS (
    SELECT number, previous, status, said, 1 FROM responses
        WHERE id = :id AND owner = :owner AND used >= :since
    UNION ALL
    SELECT r.number, r.previous, r.status, chain.said + r.said, depth + 1
        FROM chain JOIN responses r ON r.id = chain.previous AND r.owner = :owner AND r.used >= :since
        WHERE chain.said <= :most AND depth < :longest
) SELECT number, previous, status, said FROM chain ORDER BY depth
"""


class Database:
    """One frontend's view of the file. To be used by one thread at a time.

    An `owner` sees its own responses alone. Methods raise sqlite3.Error where the file fails.
    """

    def __init__(self, file: StoreFile, bounds: Bounds) -> None:
        self._file = file
        self._database = file.database
        self._bounds = bounds

    def insert(self, owner: bytes, record: Record, freed: int = 0) -> int | None:
        """Keeps a response where there is room for it. Else it drops others, a moment long, and returns how
        many bytes it has `freed` by now: it is to be called again, with these. Raises NoRoom.
        """
        said = sum(len(item.content) for item in (*record.inputs, *record.outputs))
        rows = len(record.inputs) + len(record.outputs) + 1
        now, runner, until = time.time(), None, None
        if record.within_s is not None:
            runner, until = self._file.runner, now + record.within_s
        size = said + len(record.body) + rows * OVERHEAD
        with self._writing():
            missing = self._make_room(owner, size, freed)
            if missing is not None:
                return missing
            number = self._database.execute(
                "INSERT INTO responses"
                " (id, owner, previous, status, background, runner, until, body, said, size, used)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.id, owner, record.previous, record.status, record.in_background, runner, until,
                    record.body, said, size, now,
                ),
            ).lastrowid  # fmt: skip
            assert number is not None
            self._insert_items(number, owner, 0, record.inputs, is_output=False)
            self._insert_items(number, owner, len(record.inputs), record.outputs, is_output=True)
        return None

    def begun(self, id: str) -> None:
        """A response in the background has its first token."""
        self._database.execute(
            "UPDATE responses SET status = 'in_progress' WHERE id = ? AND status = 'queued'", (id,)
        )

    def finish(self, id: str, ending: Ending, freed: int = 0) -> int | None:
        """Of a response that was not complete, unless it was cancelled or deleted meanwhile. Makes room as
        `insert` does, and returns the same.
        """
        said = sum(len(item.content) for item in ending.outputs)
        with self._writing():
            found = self._database.execute(
                "SELECT number, owner, body FROM responses WHERE id = ? AND status IN (?, ?)", (id, *OPEN)
            ).fetchone()
            if found is None:
                return None
            number, owner, before = found
            body = before if ending.body is None else ending.body
            grown = said + len(ending.outputs) * OVERHEAD + len(body) - len(before)
            missing = self._make_room(owner, grown, freed)
            if missing is not None:
                return missing
            self._database.execute(
                "UPDATE responses SET status = ?, error = ?, body = ?, said = said + ?, size = size + ?,"
                " used = ? WHERE number = ?",
                (ending.status, ending.error, body, said, grown, time.time(), number),
            )
            first = self._database.execute(
                "SELECT coalesce(max(place) + 1, 0) FROM items WHERE response = ?", (number,)
            ).fetchone()[0]
            self._insert_items(number, owner, first, ending.outputs, is_output=True)
        return None

    def read(self, owner: bytes, id: str) -> bytes:
        """The response as JSON. Raises Unknown."""
        number, _, _ = self._found(owner, id)
        with self._reading():
            status, body, error = self._database.execute(
                "SELECT status, body, error FROM responses WHERE number = ?", (number,)
            ).fetchone() or ("", b"", None)
            outputs = self._items(number, "is_output")
        if not body:
            raise Unknown(id)  # it was deleted just now
        parts = (
            body[:-1], b', "status": "', status.encode(), b'", "error": ', error or b"null", b', "output": [',
            b", ".join(item.content for item in outputs), b"]}",
        )  # fmt: skip
        return b"".join(parts)

    def inputs(self, owner: bytes, id: str, after: str | None, limit: int, *, newest_first: bool) -> Page:
        """Input items, at most `limit`, behind the one of the id `after`. Raises Unknown for either id."""
        number, _, _ = self._found(owner, id)
        order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
        where, values = "response = ? AND NOT is_output", [number]
        if after is not None:
            place = self._database.execute(
                f"SELECT place FROM items WHERE {where} AND id = ?", (number, after)
            ).fetchone()
            if place is None:
                raise Unknown(after)
            where, values = f"{where} AND place {beyond} ?", [number, place[0]]
        rows = self._database.execute(
            f"SELECT id, content FROM items WHERE {where} ORDER BY place {order} LIMIT ?",
            (*values, limit + 1),
        )
        found = [Item(*row) for row in rows]
        return Page(found[:limit], len(found) > limit)

    def delete(self, owner: bytes, id: str) -> None:
        """Raises Unknown."""
        deleted = self._database.execute("DELETE FROM responses WHERE id = ? AND owner = ?", (id, owner))
        if not deleted.rowcount:
            raise Unknown(id)

    def cancel(self, owner: bytes, id: str) -> None:
        """Ends a response in the background; one that was cancelled before stays as it is.

        Raises Unknown, and NotCancelled for one that is not in the background or has ended otherwise.
        """
        number, status, background = self._found(owner, id)
        if status == "cancelled":
            return
        if status not in OPEN or not background:
            raise NotCancelled(status, background)
        changed = self._database.execute(
            "UPDATE responses SET status = 'cancelled' WHERE number = ? AND status IN (?, ?)", (number, *OPEN)
        )
        if not changed.rowcount:  # it has ended between the two
            raise NotCancelled(self._found(owner, id)[1], True)

    def unwanted(self, ids: Sequence[str]) -> list[str]:
        """Those of this frontend's open responses that were cancelled or deleted, wherever that was asked."""
        wanted: set[str] = set()
        for some in _in_parts(ids):
            marks = ", ".join("?" * len(some))
            rows = self._database.execute(
                f"SELECT id FROM responses WHERE status IN (?, ?) AND id IN ({marks})", (*OPEN, *some)
            )
            wanted |= {id for (id,) in rows}
        return [id for id in ids if id not in wanted]

    def history(self, owner: bytes, id: str, most: int) -> list[bytes]:
        """All items of a response and of those that it continues, the oldest first.

        Raises Unknown, AncestorGone, NotContinued where the response has no answer, and TooLong where they
        have more than `most` bytes.
        """
        asked = {
            "id": id, "owner": owner, "since": self._since(), "most": most, "longest": LONGEST_CHAIN,
        }  # fmt: skip
        with self._writing():
            chain = self._database.execute(CHAIN, asked).fetchall()
            if not chain:
                raise Unknown(id)
            if chain[0][2] not in ("completed", "incomplete"):
                raise NotContinued(self._found(owner, id)[1])
            _, previous, _, said = chain[-1]
            if said > most or (previous is not None and len(chain) == LONGEST_CHAIN):
                raise TooLong
            if previous is not None:
                raise AncestorGone(previous)
            now = time.time()
            self._database.executemany(
                "UPDATE responses SET used = ? WHERE number = ? AND used < ?",
                [(now, number, now - TOUCHED_S) for number, *_ in chain],
            )
            return [item.content for number, *_ in reversed(chain) for item in self._items(number, "1")]

    def items(self, owner: bytes, ids: Sequence[str], most: int) -> dict[str, bytes]:
        """The items of these ids, each of which is asked for once: the newest of those that have it.

        Raises Unknown, and TooLong where they have more than `most` bytes.
        """
        found: dict[str, bytes] = {}
        size = 0
        for id in ids:
            newest = self._database.execute(
                "SELECT content FROM items JOIN responses ON number = response"
                " WHERE items.owner = ? AND items.id = ? AND used >= ? ORDER BY response DESC LIMIT 1",
                (owner, id, self._since()),
            ).fetchone()
            if newest is None:
                raise Unknown(id)
            size += len(newest[0])
            if size > most:
                raise TooLong
            found[id] = newest[0]
        return found

    def sweep(self) -> bool:
        """Deletes some of the responses that are too old, and of those for which there is no room, as where
        the file was allowed to be larger before. Returns whether there may be more.
        """
        n, freed = 0, 0
        with self._writing():
            old = self._database.execute(
                "SELECT number, size FROM responses WHERE used < ? ORDER BY used LIMIT ?",
                (self._since(), SWEPT),
            ).fetchall()
            for number, size in old:
                if freed < SWEPT_BYTES:
                    self._drop(number)
                    n, freed = n + 1, freed + size
            while n < SWEPT and freed < SWEPT_BYTES and not self._fits(0):
                found = self._least_needed(None, 0)
                if found is None:
                    break
                number, size = found
                self._drop(number)
                n, freed = n + 1, freed + size
        return n >= SWEPT or freed >= SWEPT_BYTES

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """All that is read is of one moment."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("COMMIT")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """All or nothing, and nobody else writes meanwhile."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:  # some errors have ended it already
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _since(self) -> float:
        return time.time() - self._bounds.age_s

    def _found(self, owner: bytes, id: str) -> tuple[int, str, bool]:
        """Number, status, and whether it is in the background. Raises Unknown. One whose frontend has died
        has failed.
        """
        found = self._database.execute(
            "SELECT number, status, background, runner, until FROM responses"
            " WHERE id = ? AND owner = ? AND used >= ?",
            (id, owner, self._since()),
        ).fetchone()
        if found is None:
            raise Unknown(id)
        number, status, background, runner, until = found
        if status not in OPEN or (self._file.lives(runner) and time.time() < until):
            return number, status, bool(background)
        self._database.execute(
            "UPDATE responses SET status = 'failed', error = ? WHERE number = ? AND status IN (?, ?)",
            (LOST, number, *OPEN),
        )
        return number, "failed", bool(background)

    def _items(self, number: int, condition: str) -> list[Item]:
        rows = self._database.execute(
            f"SELECT id, content FROM items WHERE response = ? AND {condition} ORDER BY place", (number,)
        )
        return [Item(*row) for row in rows]

    def _insert_items(
        self, number: int, owner: bytes, first: int, items: Sequence[Item], *, is_output: bool
    ) -> None:
        self._database.executemany(
            "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)",
            [(number, place, is_output, owner, *item) for place, item in enumerate(items, first)],
        )

    def _make_room(self, owner: bytes, size: int, freed: int) -> int | None:
        """None where there is room for `size` bytes of this owner, or as much was `freed` for them: where the
        file was allowed to be larger before, it gets no larger. Else what was freed by now. Raises NoRoom.
        """
        if size <= 0 or self._fits(size):
            return None
        if size > self._bounds.size:
            raise NoRoom
        before = freed
        for _ in range(SWEPT):
            if freed >= size or self._fits(size):
                return None
            if freed - before >= SWEPT_BYTES:
                break
            found = self._least_needed(owner, size)
            if found is None:
                raise NoRoom
            number, bytes_of_it = found
            self._drop(number)
            freed += bytes_of_it
        return freed

    def _fits(self, size: int) -> bool:
        return bool(self._one("SELECT coalesce(sum(bytes), 0) FROM owners") + size <= self._bounds.size)

    def _least_needed(self, owner: bytes | None, size: int) -> tuple[int, int] | None:
        """Number and size of the response that makes room for `size` bytes of this owner, or None. Whoever
        has most, these among it, loses what it has used least of late, so nobody drives others' responses
        out. What is still computed stays.
        """
        owners = self._database.execute(
            "SELECT owner, bytes FROM owners WHERE owner IS NOT ?1"
            " UNION ALL SELECT ?1, ?2 + coalesce((SELECT bytes FROM owners WHERE owner = ?1), 0)"
            " ORDER BY 2 DESC",
            (owner, size),
        )
        for most, _ in owners:
            found: tuple[int, int] | None = self._database.execute(
                f"SELECT number, size FROM responses WHERE owner = :owner AND {MAY_GO}"
                " ORDER BY used, number LIMIT 1",
                {"owner": most, "now": time.time()},
            ).fetchone()
            if found is not None or most == owner:
                return found
        return None

    def _drop(self, number: int) -> None:
        self._database.execute("DELETE FROM responses WHERE number = ?", (number,))

    def _one(self, query: str) -> Any:
        return self._database.execute(query).fetchone()[0]


def _in_parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + IDS] for start in range(0, len(ids), IDS))
