"""The store of responses: what is found again, by whom, for how long, and what becomes of it in a crash."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import forked

from nic_frontend.store import database as module
from nic_frontend.store.database import OVERHEAD, Database
from nic_frontend.store.file import StoreFile
from nic_frontend.store.records import (
    AncestorGone,
    Bounds,
    Ending,
    Item,
    NoRoom,
    NotCancelled,
    NotContinued,
    Record,
    TooLong,
    Unknown,
)

ME, YOU = b"me", b"you"
PLENTY = Bounds(1 << 30, 1e6)
Open = Callable[..., Database]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "responses"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    """Opens the file as one more frontend does."""
    found: list[Database] = []

    def open_one(bounds: Bounds = PLENTY) -> Database:
        found.append(Database(StoreFile(path), bounds))
        return found[-1]

    yield open_one
    for one in found:
        one.close()


def item(id: str, size: int = 0) -> Item:
    return Item(id, json.dumps({"id": id, "text": "x" * size}).encode())


def record(id: str, previous: str | None = None, **more: Any) -> Record:
    kept = {"inputs": [item(f"{id}-in")], "outputs": [item(f"{id}-out")], "status": "completed"} | more
    return Record(id=id, body=json.dumps({"id": id}).encode(), previous=previous, **kept)


def waiting(id: str, **more: Any) -> Record:
    return record(id, status="queued", outputs=[], within_s=100.0, in_background=True, **more)


def ids(contents: list[bytes]) -> list[str]:
    return [json.loads(content)["id"] for content in contents]


def test_what_one_frontend_keeps_another_finds(opened: Open) -> None:
    opened().insert(ME, record("a"))
    found = json.loads(opened().read(ME, "a"))
    assert found == {
        "id": "a", "status": "completed", "error": None, "output": [{"id": "a-out", "text": ""}],
    }  # fmt: skip


def test_nobody_finds_what_is_anothers(opened: Open) -> None:
    one = opened()
    one.insert(ME, record("a"))
    with pytest.raises(Unknown):
        one.read(YOU, "a")
    with pytest.raises(Unknown):
        one.history(YOU, "a", 1000)
    with pytest.raises(Unknown):
        one.items(YOU, ["a-in"], 1000)
    with pytest.raises(Unknown):
        one.inputs(YOU, "a", None, 10, newest_first=False)
    with pytest.raises(Unknown):
        one.delete(YOU, "a")
    with pytest.raises(Unknown):
        one.cancel(YOU, "a")
    assert one.read(ME, "a")


def test_nobody_continues_what_is_anothers(opened: Open) -> None:
    one = opened()
    one.insert(ME, record("a"))
    one.insert(YOU, record("b", previous="a"))
    with pytest.raises(AncestorGone):
        one.history(YOU, "b", 1000)


def test_a_chain_is_told_from_its_beginning(opened: Open) -> None:
    one = opened()
    for id, previous in (("a", None), ("b", "a"), ("c", "b"), ("other", "a")):
        one.insert(ME, record(id, previous=previous))
    told = ids(one.history(ME, "c", 10_000))
    assert told == ["a-in", "a-out", "b-in", "b-out", "c-in", "c-out"]


def test_a_chain_whose_beginning_is_gone(opened: Open) -> None:
    one = opened()
    for id, previous in (("a", None), ("b", "a"), ("c", "b")):
        one.insert(ME, record(id, previous=previous))
    one.delete(ME, "a")
    with pytest.raises(AncestorGone) as told:
        one.history(ME, "c", 10_000)
    assert told.value.id == "a"


def test_how_much_is_read_at_once_is_bounded(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened()
    for id, previous in (("a", None), ("b", "a"), ("c", "b")):
        one.insert(ME, record(id, previous=previous, inputs=[item(f"{id}-in", 1000)]))
    with pytest.raises(TooLong):
        one.history(ME, "c", 2000)
    with pytest.raises(TooLong):
        one.items(ME, ["a-in", "b-in", "c-in"], 2000)
    monkeypatch.setattr(module, "LONGEST_CHAIN", 2)
    with pytest.raises(TooLong):
        one.history(ME, "c", 100_000)


def test_input_items_by_pages(opened: Open) -> None:
    one = opened()
    one.insert(ME, record("a", inputs=[item(f"i{n}") for n in range(5)]))

    def page(after: str | None, **more: Any) -> tuple[list[str], bool]:
        found = one.inputs(ME, "a", after, 2, **more)
        return [each.id for each in found.items], found.has_more

    assert page(None, newest_first=False) == (["i0", "i1"], True)
    assert page("i1", newest_first=False) == (["i2", "i3"], True)
    assert page("i3", newest_first=False) == (["i4"], False)
    assert page(None, newest_first=True) == (["i4", "i3"], True)
    assert page("i1", newest_first=True) == (["i0"], False)
    with pytest.raises(Unknown):
        page("a-out", newest_first=True)


def test_an_item_of_an_id_that_came_twice_is_the_newest(opened: Open) -> None:
    one = opened()
    one.insert(ME, record("a", inputs=[item("same", 1)]))
    one.insert(ME, record("b", inputs=[item("same", 2)]))
    assert json.loads(one.items(ME, ["same"], 1000)["same"])["text"] == "xx"


def test_items_of_one_id_are_not_all_read(opened: Open) -> None:
    """Clients choose ids: what one id costs is that of its newest item, however many have it."""
    one = opened()
    for n in range(100):
        one.insert(ME, record(f"r{n}", inputs=[item("same", 100_000)]))
        one.insert(YOU, record(f"y{n}", inputs=[item("same", 100_000)]))
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    one._database.set_progress_handler(count, 1)
    assert len(one.items(ME, ["same"], 200_000)["same"]) > 100_000
    one._database.set_progress_handler(None, 1)
    assert steps < 100


def test_whoever_has_most_makes_room(opened: Open) -> None:
    one = opened(Bounds(100_000, 1e6))
    one.insert(YOU, record("old", inputs=[item("old-in", 10_000)]))
    for n in range(20):
        one.insert(ME, record(f"r{n}", inputs=[item(f"r{n}-in", 10_000)]))
    one.read(YOU, "old")
    kept = [n for n in range(20) if is_kept(one, f"r{n}")]
    assert kept == list(range(20 - len(kept), 20))
    assert 5 < len(kept) < 9


def insert(one: Database, owner: bytes, record: Record) -> int:
    """Keeps it, however often it has to be tried. Returns how often that is."""
    freed: int | None = 0
    n = 0
    while freed is not None:
        freed, n = one.insert(owner, record, freed), n + 1
    return n


def kept_bytes(path: Path) -> int:
    found = sqlite3.connect(path).execute("SELECT sum(bytes) FROM owners").fetchone()[0]
    assert isinstance(found, int)
    return found


def test_a_file_that_was_allowed_more(opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened()
    for n in range(20):
        one.insert(ME, record(f"r{n}", inputs=[item(f"r{n}-in", 10_000)]))
    before = kept_bytes(path)
    less = opened(Bounds(50_000, 1e6))
    monkeypatch.setattr(module, "SWEPT", 3)
    insert(less, ME, record("new"))
    assert sum(is_kept(less, f"r{n}") for n in range(20)) == 19, "it makes room for itself alone"
    assert kept_bytes(path) <= before
    rounds = 1
    while less.sweep():
        rounds += 1
    assert rounds == 6
    assert [n for n in range(20) if is_kept(less, f"r{n}")] == [16, 17, 18, 19]
    assert is_kept(less, "new")


def test_many_small_ones_make_room_for_a_large_one(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEPT", 10)
    one = opened(Bounds(500_000, 1e6))
    for n in range(300):
        insert(one, ME, record(f"r{n}"))
    for n in range(3):
        rounds = insert(one, ME, record(f"large{n}", inputs=[item("large", 200_000)]))
        assert rounds > 5 or n == 2
        assert kept_bytes(path) <= 500_000
    assert [n for n in range(3) if is_kept(one, f"large{n}")] == [1, 2]


def test_large_ones_are_deleted_one_by_one(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEPT_BYTES", 30_000)
    one = opened()
    for n in range(10):
        one.insert(ME, record(f"r{n}", inputs=[item("large", 20_000)]))
    less = opened(Bounds(50_000, 1e6))
    assert less.sweep()
    assert sum(is_kept(less, f"r{n}") for n in range(10)) == 8


def test_what_is_computed_stays(opened: Open) -> None:
    one = opened(Bounds(100_000, 1e6))
    one.insert(ME, waiting("slow", inputs=[item("slow-in", 10_000)]))
    for n in range(20):
        insert(one, ME, record(f"r{n}", inputs=[item("large", 10_000)]))
    assert json.loads(one.read(ME, "slow"))["status"] == "queued"
    one.finish("slow", Ending("completed"))
    for n in range(20):
        insert(one, ME, record(f"s{n}", inputs=[item("large", 10_000)]))
    assert not is_kept(one, "slow")


def test_where_everything_is_computed_there_is_no_room(opened: Open) -> None:
    one = opened(Bounds(100_000, 1e6))
    one.insert(YOU, record("yours"))
    for n in range(8):
        one.insert(ME, waiting(f"r{n}", inputs=[item("in", 10_000)]))
    with pytest.raises(NoRoom):
        insert(one, ME, record("more", inputs=[item("in", 20_000)]))
    with pytest.raises(NoRoom):
        insert(one, ME, record("alone too large", inputs=[item("in", 100_000)]))
    with pytest.raises(NoRoom):
        one.finish("r0", Ending("completed", outputs=[item("out", 20_000)]))
    one.finish("r0", Ending("failed", error=b"{}"))
    assert json.loads(one.read(ME, "r0"))["status"] == "failed"
    assert one.read(YOU, "yours")
    insert(one, YOU, record("more", inputs=[item("in", 10_000)]))


def is_kept(one: Database, id: str) -> bool:
    try:
        return bool(one.read(ME, id))
    except Unknown:
        return False


def test_room_that_is_given_back_is_counted(opened: Open, path: Path) -> None:
    one = opened()
    one.insert(ME, waiting("a"))
    one.finish("a", Ending("completed", b'{"id": "a", "more": 1}', outputs=[item("out", 100)]))
    (size,) = sqlite3.connect(path).execute("SELECT bytes FROM owners").fetchone()
    assert size > 100 + 3 * OVERHEAD
    one.delete(ME, "a")
    assert sqlite3.connect(path).execute("SELECT bytes FROM owners").fetchone() == (0,)
    assert sqlite3.connect(path).execute("SELECT count(*) FROM items").fetchone() == (0,)


def test_what_is_old_is_gone_unless_it_was_continued(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "time", lambda: now)
    one = opened(Bounds(1 << 30, 500.0))
    one.insert(ME, record("a"))
    one.insert(ME, record("b"))
    now += 400
    one.history(ME, "a", 1000)
    now += 200
    assert is_kept(one, "a")
    assert not is_kept(one, "b")
    monkeypatch.setattr(module, "SWEPT", 1)
    while one.sweep():
        pass
    assert one.items(ME, ["a-in"], 1000)
    now -= 200
    assert not is_kept(one, "b"), "it was deleted, and not only passed over"


def test_what_is_read_is_of_one_moment(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened(), opened()
    one.insert(ME, waiting("a"))
    one.begun("a")
    found = Database._items

    def late(database: Database, *asked: Any) -> list[Item]:
        other.finish("a", Ending("completed", outputs=[item("out")]))
        return found(database, *asked)

    monkeypatch.setattr(Database, "_items", late)
    told = json.loads(one.read(ME, "a"))
    assert (told["status"], told["output"]) == ("in_progress", [])


def test_in_the_background(opened: Open) -> None:
    one, other = opened(), opened()
    one.insert(ME, waiting("a"))
    assert json.loads(other.read(ME, "a"))["status"] == "queued"
    with pytest.raises(NotContinued) as told:
        other.history(ME, "a", 1000)
    assert told.value.status == "queued"
    one.begun("a")
    assert json.loads(other.read(ME, "a"))["status"] == "in_progress"
    one.finish("a", Ending("completed", b'{"id": "a", "usage": 1}', outputs=[item("out")]))
    found = json.loads(other.read(ME, "a"))
    assert (found["status"], found["usage"], found["output"][0]["id"]) == ("completed", 1, "out")
    assert ids(other.history(ME, "a", 1000)) == ["a-in", "out"]
    with pytest.raises(NotCancelled) as late:
        other.cancel(ME, "a")
    assert (late.value.status, late.value.background) == ("completed", True)


def test_cancelling_is_seen_by_whoever_computes(opened: Open) -> None:
    one, other = opened(), opened()
    for id in ("a", "b", "c"):
        one.insert(ME, waiting(id))
    other.cancel(ME, "a")
    other.cancel(ME, "a")
    other.delete(ME, "b")
    assert one.unwanted(["a", "b", "c"]) == ["a", "b"]
    one.finish("a", Ending("completed", outputs=[item("out")]))
    assert json.loads(one.read(ME, "a"))["status"] == "cancelled"
    assert not json.loads(one.read(ME, "a"))["output"]


def test_what_was_answered_while_its_client_waited_is_not_cancelled(opened: Open) -> None:
    one = opened()
    one.insert(ME, record("a"))
    with pytest.raises(NotCancelled) as told:
        one.cancel(ME, "a")
    assert not told.value.background


def test_what_a_dead_frontend_computed_has_failed(opened: Open, path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from nic_frontend.store.database import Database\n"
        "from nic_frontend.store.file import StoreFile\n"
        "from nic_frontend.store.records import Bounds, Record\n"
        "one = Database(StoreFile(Path(sys.argv[1])), Bounds(1 << 30, 1e6))\n"
        "one.insert(b'me', Record('a', 'queued', b'{\"id\": 1}', within_s=100.0))\n"
        "print('kept', flush=True); sys.stdin.read()\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        one = opened()
        assert json.loads(one.read(ME, "a"))["status"] == "queued"
        other.kill()
    found = json.loads(one.read(ME, "a"))
    assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
    with pytest.raises(NotContinued):
        one.history(ME, "a", 1000)


def test_a_child_of_a_dead_frontend_computes_nothing(opened: Open, path: Path) -> None:
    one, other = opened(), StoreFile(path)
    with forked():
        assert one._file.lives(other.runner)
        other.close()
        assert not one._file.lives(other.runner)


def test_nothing_is_computed_for_ever(opened: Open) -> None:
    one = opened()
    one.insert(ME, record("a", status="in_progress", within_s=-1.0))
    assert json.loads(one.read(ME, "a"))["status"] == "failed"


def test_the_files_are_this_users_alone(opened: Open, path: Path) -> None:
    before = os.umask(0)
    try:
        opened().insert(ME, record("a"))
    finally:
        os.umask(before)
    files = list(path.parent.iterdir())
    assert len(files) == 4
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)


def test_what_is_deleted_is_not_in_the_file(opened: Open, path: Path) -> None:
    one = opened()
    one.insert(ME, record("a", inputs=[Item("i", b'"a very secret word"')]))
    one.delete(ME, "a")
    one._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"very secret" not in path.read_bytes()


@pytest.mark.parametrize("what", ["open to others", "directory", "link", "fifo", "text", "other", "newer"])
def test_files_that_are_no_store(path: Path, what: str) -> None:
    if what == "open to others":
        path.touch(0o644)
    elif what == "directory":
        path.mkdir()
    elif what == "link":
        path.symlink_to(path.with_name("target"))
    elif what == "fifo":
        os.mkfifo(path, 0o600)
    elif what == "text":
        path.touch(0o600)
        path.write_text("no database, but long enough to be looked at" * 100)
    elif what == "newer":
        StoreFile(path).close()
        sqlite3.connect(path).execute("PRAGMA user_version = 99")
    else:
        path.touch(0o600)
        sqlite3.connect(path).execute("CREATE TABLE x (y)")
    with pytest.raises((OSError, ValueError), match=str(path)):
        StoreFile(path)


def test_no_name_is_one_of_sqlites_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (Database(StoreFile(Path(":memory:")), PLENTY) for _ in range(2))
    one.insert(ME, record("a"))
    assert other.read(ME, "a")
    one.close()
    other.close()


def test_many_frontends_start_at_once(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from nic_frontend.store.file import StoreFile\n"
        "print(StoreFile(Path(sys.argv[1])).runner)"
    )
    root = Path(__file__).parents[2]
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=root, stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    numbers = {one.communicate()[0] for one in started}
    assert all(one.returncode == 0 for one in started)
    assert len(numbers) == 6
