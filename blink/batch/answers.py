"""The file of a batch's answers: a line for each request, written as soon as it is answered.

A batch may be stopped, or killed, at any time. The same command then goes on: what its file of answers has is
not asked again, and a last line that is not complete is removed, if an answer begins so. Any other file stays
as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import msgspec

from blink.batch.lines import Index, key_of
from blink.errors import CommandError

ID = "batch_req_"
BEGINNING = b'{"id":"%b' % ID.encode()  # of each line
NUMBERED = re.compile(rf"{ID}(\d{{1,18}})")


class _Response(msgspec.Struct):
    status_code: Any = None


class _Answer(msgspec.Struct):
    id: str
    custom_id: str | None
    response: _Response | None = None


class Answers:
    """`n_failed` counts those with another status than 200, and lines without one; those that the file had
    before among them. Raises CommandError where the file is not one of answers to these lines, or
    another batch writes to it.
    """

    def __init__(self, path: Path, index: Index) -> None:
        self.n_failed = 0
        self._path, self._index = path, index
        self._whole = 0  # bytes of the lines that are complete
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise CommandError(f"{path} is no regular file: give another one for the answers")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._go_on()
        except BlockingIOError:
            os.close(self._file)
            raise CommandError(f"{path}: another blink batch writes to it") from None
        except BaseException:
            os.close(self._file)
            raise

    def _go_on(self) -> None:
        """Reads what the file has, and cuts it off behind the last complete line of it."""
        with self._path.open("rb") as file:
            number = 0
            while beginning := file.readline(len(BEGINNING)):
                where = f"{self._path}, line {(number := number + 1)}"
                if not beginning.startswith(b"{"):  # the rest may be as long as a disk
                    raise _no_answer(where)
                line = beginning if beginning.endswith(b"\n") else beginning + file.readline()
                if not line.endswith(b"\n"):
                    if not BEGINNING.startswith(beginning):
                        raise _no_answer(where)
                    break
                self._whole += len(line)
                self._know(line, where)
        os.ftruncate(self._file, self._whole)

    def _know(self, line: bytes, where: str) -> None:
        try:
            answer = _answer(line)
        except (ValueError, RecursionError):
            raise _no_answer(where) from None
        numbered = NUMBERED.fullmatch(answer.id)
        key = key_of(answer.custom_id, int(numbered[1]) if numbered else 0)
        if not self._index.mark(key):
            raise CommandError(f"{where} answers none of these requests: give another file for the answers")
        self.n_failed += answer.response is None or answer.response.status_code != 200

    def write(self, number: int, custom_id: str | None, status: int, request_id: str, body: bytes) -> None:
        """The answer to a line; `body` is its JSON. Raises CommandError where it cannot be written."""
        self._write(
            number, custom_id,
            b'{"status_code":%d,"request_id":%b,"body":%b}' % (status, _json(request_id), body), b"null",
        )  # fmt: skip
        self.n_failed += status != 200

    def write_error(self, number: int, custom_id: str | None, code: str, message: str) -> None:
        """That a line has no answer. Raises CommandError as `write` does."""
        self._write(number, custom_id, b"null", _json({"code": code, "message": message}))
        self.n_failed += 1

    def _write(self, number: int, custom_id: str | None, response: bytes, error: bytes) -> None:
        line = BEGINNING + b'%d","custom_id":%b,"response":%b,"error":%b}\n' % (
            number, _json(custom_id), response, error,
        )  # fmt: skip
        written = 0
        try:
            while written < len(line):
                written += os.pwrite(self._file, line[written:], self._whole + written)
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next start does it
                os.ftruncate(self._file, self._whole)
            raise self._unwritable(error) from error
        self._whole += len(line)
        self._index.mark(key_of(custom_id, number))

    def close(self) -> None:
        """Raises CommandError where the disk has not taken all."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            os.close(self._file)

    def _unwritable(self, error: OSError) -> CommandError:
        return CommandError(
            f"{self._path}: cannot be written: {error.strerror}; mend that, and the same command goes on"
        )


def _no_answer(where: str) -> CommandError:
    return CommandError(f"{where} is no answer of a batch: give another file for the answers")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _answer(line: bytes) -> _Answer:
    """Raises ValueError for what is none."""
    try:
        return msgspec.json.decode(line, type=_Answer)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # lone surrogates, which a request may have: no strict JSON
        return msgspec.convert(json.loads(line), _Answer)
