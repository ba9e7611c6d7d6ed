"""CPU antagonists: other tenants of given cores while something is measured (native/antagonist.cpp)."""

from __future__ import annotations

import select
import subprocess
from pathlib import Path
from types import TracebackType

from blink.errors import CommandError

PROGRAM = Path(__file__).with_name("blink-antagonist")
KINDS = ("copy", "map", "sort", "spawn")
START_S = 60.0
END_S = 10.0


class Antagonists:
    """At work between enter and exit; `work` then says how often each kind's unit was done.

    Raises CommandError when they do not start. They end with this process whatever becomes of it (B10).
    """

    def __init__(self, kinds: tuple[str, ...], per_core: int, cores: tuple[int, ...]) -> None:
        self._words = [",".join(kinds), str(per_core), ",".join(map(str, cores))]
        self.work: dict[str, int] = {}

    def __enter__(self) -> Antagonists:
        if not PROGRAM.exists():
            raise CommandError(
                f"{PROGRAM} was not built: reinstall the package; in a checkout, run scripts/setup"
            )
        self._process = subprocess.Popen(
            [str(PROGRAM), *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        if not ready or self._process.stdout.readline() != b"ready\n":
            self._process.kill()
            _, told = self._process.communicate()
            raise CommandError(f"antagonists did not start: {told.decode().strip() or 'timeout'}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            output, _ = self._process.communicate(timeout=END_S)  # closes its standard input
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        for line in output.decode().splitlines():
            name, count = line.split()
            self.work[name] = int(count)


def kinds(text: str) -> tuple[str, ...]:
    """Of "copy,sort". Raises ValueError."""
    names = tuple(text.split(","))
    if unknown := set(names) - set(KINDS):
        raise ValueError(f"'{', '.join(sorted(unknown))}': antagonists are {', '.join(KINDS)}")
    return names
