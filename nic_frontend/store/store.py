"""The store of responses as the event loop uses it: its file is read and written in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from nic_frontend.errors import unavailable
from nic_frontend.store.database import Database
from nic_frontend.store.file import StoreFile
from nic_frontend.store.records import Bounds, Ending, NoRoom, Page, Record
from ringbuffer.model_file import one_line

log = logging.getLogger(__name__)

T = TypeVar("T")

SWEEP_S = 60.0  # between looks for responses that are too old


class Store:
    """The file at `path`, which the frontends of a host share.

    Raises OSError or ValueError where it cannot be used. Methods raise ApiError 503 where it fails later.
    """

    def __init__(self, path: Path, bounds: Bounds) -> None:
        self._database = Database(StoreFile(path), bounds)
        self._executor = ThreadPoolExecutor(1, "store")

    async def ask(self, call: Callable[[Database], T]) -> T:
        """It goes on if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, call, self._database)
        except sqlite3.Error as error:
            _refuse(error)
        except NoRoom:
            log.warning("a response was not stored: there is no room for it (--store-size)")
            raise unavailable(
                "the store of responses has no room for this one (--store-size); retry shortly"
            ) from None

    async def make_room_for(self, call: Callable[[Database, int], int | None]) -> None:
        """Calls it until there was room, with the bytes that were freed. Others' calls come in between."""
        freed: int | None = 0
        while freed is not None:
            freed = await self.ask(partial(_with_freed, call, freed))

    def of(self, owner: bytes) -> OwnResponses:
        return OwnResponses(self, owner)

    async def begun(self, id: str) -> None:
        await self.ask(lambda database: database.begun(id))

    async def unwanted(self, ids: list[str]) -> list[str]:
        return await self.ask(lambda database: database.unwanted(ids))

    async def run(self) -> None:
        """Deletes what is too old, for as long as the frontend serves."""
        while True:
            try:
                while await self.ask(Database.sweep):
                    pass  # others' calls come in between
            except Exception as error:
                log.warning("old responses were not deleted: %s", error)
            await asyncio.sleep(SWEEP_S)

    def close(self) -> None:
        """Waits for the call that is under way."""
        self._executor.shutdown(cancel_futures=True)
        self._database.close()


class OwnResponses:
    """Those of one owner. Errors beside those of the Store are those of the Database's methods."""

    def __init__(self, store: Store, owner: bytes) -> None:
        self._store = store
        self._owner = owner

    async def insert(self, record: Record) -> None:
        await self._store.make_room_for(lambda database, freed: database.insert(self._owner, record, freed))

    async def finish(self, id: str, ending: Ending) -> None:
        await self._store.make_room_for(lambda database, freed: database.finish(id, ending, freed))

    async def read(self, id: str) -> bytes:
        return await self._store.ask(lambda database: database.read(self._owner, id))

    async def inputs(self, id: str, after: str | None, limit: int, *, newest_first: bool) -> Page:
        asked = partial(Database.inputs, newest_first=newest_first)
        return await self._store.ask(lambda database: asked(database, self._owner, id, after, limit))

    async def delete(self, id: str) -> None:
        await self._store.ask(lambda database: database.delete(self._owner, id))

    async def cancel(self, id: str) -> None:
        await self._store.ask(lambda database: database.cancel(self._owner, id))

    async def history(self, id: str, most: int) -> list[bytes]:
        return await self._store.ask(lambda database: database.history(self._owner, id, most))

    async def items(self, ids: list[str], most: int) -> dict[str, bytes]:
        return await self._store.ask(lambda database: database.items(self._owner, ids, most))


def _with_freed(call: Callable[[Database, int], T], freed: int, database: Database) -> T:
    return call(database, freed)


def _refuse(error: sqlite3.Error) -> NoReturn:
    told = one_line(str(error))
    log.warning("the store of responses failed: %s", told)
    raise unavailable(f"the store of responses cannot be used now ({told}); retry shortly") from error
