"""The files of stored responses: SQLite's, and one whose locks say which frontends live."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from pathlib import Path

from ringbuffer.byte_lock import is_byte_locked, lock_byte
from ringbuffer.own_descriptor import OwnDescriptor

APPLICATION = 0x424C4E4B  # "BLNK" in the file's header, so that no other program's database is taken for one
VERSION = 2  # of the tables
BUSY_S = 5.0  # that a write waits for those of other frontends
PAUSE_S = 0.01
SETTING_UP = 0  # the byte that is locked while the tables are made; the others are runners'

TABLES = """
CREATE TABLE runners (number INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE responses (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner BLOB NOT NULL,
    previous TEXT,           -- the id of the response that this one continues
    status TEXT NOT NULL,
    background INTEGER NOT NULL,
    runner INTEGER,          -- the frontend that computes it, where it was not complete at once
    until REAL,              -- when that must have ended: seconds of time.time
    error BLOB,              -- JSON, of one that failed
    body BLOB NOT NULL,      -- the response as a JSON object, without status, error and output
    said INTEGER NOT NULL,   -- bytes of its items
    size INTEGER NOT NULL,   -- bytes of all that is kept of it
    used REAL NOT NULL       -- when it was made or continued last: seconds of time.time
);
CREATE INDEX responses_by_use ON responses (used);
CREATE INDEX responses_by_owner ON responses (owner, used);
CREATE TABLE items (
    response INTEGER NOT NULL REFERENCES responses (number) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    is_output INTEGER NOT NULL,
    owner BLOB NOT NULL,     -- that of the response
    id TEXT NOT NULL,        -- clients choose it: of a response's items alone it is the only one
    content BLOB NOT NULL,   -- JSON
    UNIQUE (response, place)
);
CREATE UNIQUE INDEX items_by_id ON items (owner, id, response);
CREATE TABLE owners (owner BLOB PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER response_comes AFTER INSERT ON responses BEGIN
    INSERT INTO owners VALUES (new.owner, new.size)
        ON CONFLICT (owner) DO UPDATE SET bytes = bytes + new.size;
END;
CREATE TRIGGER response_grows AFTER UPDATE OF size ON responses BEGIN
    UPDATE owners SET bytes = bytes + new.size - old.size WHERE owner = new.owner;
END;
CREATE TRIGGER response_goes AFTER DELETE ON responses BEGIN
    UPDATE owners SET bytes = bytes - old.size WHERE owner = old.owner;
END;
"""


def open_own(path: Path) -> int:
    """A descriptor of a file that is this user's alone, made where there is none.

    Raises ValueError where it is something else, and OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except IsADirectoryError:
        raise ValueError(f"{path} is a directory: name a file in it") from None
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077:
        return descriptor
    os.close(descriptor)
    raise ValueError(
        f"{path} is no file of this user's alone: stored responses are other people's words (mode 0600)"
    )


class StoreFile:
    """The database at `path`, which several frontends have open, and this one's number among them.

    Raises OSError or ValueError where the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        os.close(open_own(path))  # SQLite gives the files beside it the same mode
        self._locks = OwnDescriptor(lambda: open_own(path.with_name(f"{path.name}-frontends")))
        try:
            self.database = self._opened(path)
        except sqlite3.Error as error:
            self._locks.close()
            raise ValueError(f"{path} cannot be used as a store of responses: {error}") from error
        except BaseException:
            self._locks.close()
            raise

    def _opened(self, path: Path) -> sqlite3.Connection:
        deadline = time.monotonic() + BUSY_S
        again = f"/proc/self/fd/{self._locks.number}"
        setting_up = OwnDescriptor(lambda: os.open(again, os.O_RDWR | os.O_CLOEXEC))
        try:
            while not lock_byte(setting_up.number, SETTING_UP):
                if time.monotonic() > deadline:
                    raise ValueError(f"another process has been setting {path} up for {BUSY_S:g} s")
                time.sleep(PAUSE_S)
            # With a folder, none is one of SQLite's own names, such as ":memory:".
            database = sqlite3.connect(
                path.absolute(), timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                _set_up(database, path)
                self.runner = _number(database)
                lock_byte(self._locks.number, self.runner)
            except BaseException:
                database.close()
                raise
            return database
        finally:
            setting_up.close()

    def lives(self, runner: int) -> bool:
        """Whether the frontend of this number has the file open."""
        return runner == self.runner or is_byte_locked(self._locks.number, runner)

    def close(self) -> None:
        self.database.close()
        self._locks.close()


def _set_up(database: sqlite3.Connection, path: Path) -> None:
    tables = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    application, version = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if tables and application != APPLICATION:
        raise ValueError(f"{path} is another program's database: name another file")
    if tables and version != VERSION:
        raise ValueError(
            f"{path} was written by another version of blink (tables {version}, not {VERSION}): remove it, "
            "or name another file"
        )
    # Readers do not wait for a writer, and a write waits for no disk: after a crash of the machine, not of a
    # process, the last few may be missing.
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA secure_delete = ON")  # what was deleted is not to be found in the file
    if not tables:
        database.executescript(
            f"BEGIN IMMEDIATE;{TABLES}PRAGMA application_id = {APPLICATION};"
            f"PRAGMA user_version = {VERSION};COMMIT;"
        )


def _number(database: sqlite3.Connection) -> int:
    """One that no frontend has had before."""
    found = database.execute("INSERT INTO runners DEFAULT VALUES").lastrowid
    database.execute("DELETE FROM runners")
    assert found is not None
    return found
