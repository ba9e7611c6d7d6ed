"""Kills, stops and starves the processes of `blink serve demo` under load, and checks every answer.

    .venv/bin/python scripts/fuzz/faults.py [--cycles 100] [--device auto] [--seed N] [--only kill]

What is done, and when, is drawn at random. An answer that comes whole must be the one that an undisturbed
server gave; others may fail while something is being killed, but not for long. After each cycle the service
answers again, started anew where its backend's death ended it. At the end no process and no ring is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import httpx  # noqa: E402
from demo_model.tasks import Item, check, sample  # noqa: E402

READY_S = 300.0  # for a start; the first one compiles kernels
RECOVERS_S = 300.0  # after a cycle, on a machine where a process starts within a minute
ORPHANS_S = 75.0  # what a child has to end after its supervisor has died (blink/child.py), and some more
CLIENTS = 8
NO_TLS = False  # certificates take 30 ms to load: 8 clients without a server would let nothing else run here
TASKS = ("add", "subtract", "sort_numbers", "reverse", "spell", "count_long")


class Service:
    """`blink serve demo`, and its processes."""

    def __init__(self, device: str, port: int, log: Path) -> None:
        self._flags = [f"--device={device}", f"--port={port}", "--frontends=2", f"--ring=faults-{port}"]
        self.url, self.ring, self._log = (
            f"http://127.0.0.1:{port}",
            Path(f"/dev/shm/blink-faults-{port}"),
            log,
        )
        self.starts = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "blink", "serve", "demo", *self._flags]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=self._log.open("ab"))
        self.starts += 1

    def children(self, plane: str = "") -> list[int]:
        """Of the supervisor that runs, or of any that has run: by the ring's name on their command line."""
        found = []
        for directory in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
                ours = any(word == f"--ring={self.ring.name.removeprefix('blink-')}" for word in words)
                if ours and "serve" not in words and (not plane or plane in words):
                    found.append(int(directory.name))
        return found

    def ready(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.start()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=5, verify=NO_TLS).status_code == 200:
                    return True
            time.sleep(0.2)
        return False

    def end(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Load:
    """Clients that ask until `end`, and compare what comes whole with what came before."""

    def __init__(self, url: str, expected: dict[str, str]) -> None:
        self.counts, self.wrong = Counter[str](), list[str]()
        self._url, self._expected, self._over = url, expected, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(i,), daemon=True) for i in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._over.is_set():
            prompt, expected = draw.choice(list(self._expected.items()))
            try:
                found = answer(self._url, prompt)
            except httpx.HTTPError as error:
                self.counts[type(error).__name__] += 1
                time.sleep(0.1)
                continue
            if isinstance(found, int):
                self.counts[f"status {found}"] += 1
                time.sleep(0.1)
            elif found == expected:
                self.counts["right"] += 1
            else:
                self.counts["WRONG"] += 1
                self.wrong.append(f"{prompt!r}: {found!r} instead of {expected!r}")

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)


def answer(url: str, prompt: str) -> str | int:
    """The text, or the status where it is another than 200. Raises httpx.HTTPError."""
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 600}
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=60, verify=NO_TLS)
    return str(response.json()["choices"][0]["text"]) if response.status_code == 200 else response.status_code


# ---------------------------------------------------------------- what is done to it


def kill(plane: str) -> Callable[[Service, random.Random], None]:
    def act(service: Service, draw: random.Random) -> None:
        if victims := service.children(plane):
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(victims), signal.SIGKILL)

    act.__name__ = f"kill a {plane}"
    return act


def stand_still(plane: str, longest_s: float) -> Callable[[Service, random.Random], None]:
    def act(service: Service, draw: random.Random) -> None:
        if victims := service.children(plane):
            victim = draw.choice(victims)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGSTOP)
                time.sleep(draw.random() * longest_s)
                os.kill(victim, signal.SIGCONT)

    act.__name__ = f"stop a {plane}"
    return act


def kill_supervisor(service: Service, draw: random.Random) -> None:
    orphans = service.children()
    service.process.kill()
    service.process.wait()
    deadline = time.monotonic() + ORPHANS_S
    while left := set(orphans) & set(service.children()):
        if time.monotonic() > deadline:
            raise SystemExit(f"the supervisor was killed, and {sorted(left)} live on after {ORPHANS_S:g} s")
        time.sleep(0.1)


def exhaust_gpu_memory(service: Service, draw: random.Random) -> None:
    """Another process takes all of the GPU's memory for a while; a backend that starts then is refused."""
    program = (
        "import sys, time\n"
        "from gpu_backend.cuda.driver import Device\n"
        "from gpu_backend.cuda.memory import DeviceMemory\n"
        "device = Device(); memory = DeviceMemory(device)\n"
        "for size in (1 << 30, 1 << 26, 1 << 21):\n"
        "    try:\n"
        "        while True: memory.allocate(size)\n"
        "    except Exception: pass\n"
        f"time.sleep({draw.random() * 5})\n"
    )
    hungry = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    time.sleep(2)
    if draw.random() < 0.5:
        kill("backend")(service, draw)
    hungry.wait(60)


def refuse_a_ring(service: Service, draw: random.Random) -> None:
    """A backend that may not write its ring says so in a line; the one that runs goes on."""
    done = subprocess.run(
        [sys.executable, "-m", "blink", "backend", "demo", "--device=cpu", "--ring=faults-refused"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )  # fmt: skip
    if done.returncode != 1 or "cannot reserve" not in done.stderr:
        raise SystemExit(f"a backend without room for its ring ended with {done.returncode}: {done.stderr}")


ACTIONS = (kill("frontend"), kill("backend"), stand_still("frontend", 3), stand_still("backend", 5),
           kill_supervisor, refuse_a_ring)  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reference(url: str, draw: random.Random) -> dict[str, str]:
    """Prompts that an undisturbed server answers right, with its answers."""
    found: dict[str, str] = {}
    for task in TASKS:
        for item in (sample(task, draw, split="heldout") for _ in range(4)):
            told = answer(url, item.prompt)
            if isinstance(told, str) and right(item, told):
                found[item.prompt] = told
    return found


def right(item: Item, text: str) -> bool:
    return check(item, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--device", default="auto", help="gpu, cpu or auto (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", help="actions whose names begin so (default: all)")
    parser.add_argument(
        "--log", type=Path, default=ROOT / "build" / "faults.log", help="what the service says"
    )
    options = parser.parse_args()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    draw, done, slowest = random.Random(options.seed), Counter[str](), 0.0
    service = Service(options.device, free_port(), options.log)
    actions = ACTIONS + ((exhaust_gpu_memory,) if options.device == "gpu" else ())
    actions = tuple(act for act in actions if act.__name__.startswith(options.only))
    try:
        if not service.ready(READY_S):
            raise SystemExit(f"the service does not start: see {options.log}")
        expected = reference(service.url, draw)
        load = Load(service.url, expected)
        for _ in range(options.cycles):
            time.sleep(draw.random() * 2)
            act = draw.choice(actions)
            act(service, draw)
            done[act.__name__] += 1
            began = time.monotonic()
            if not service.ready(RECOVERS_S):
                raise SystemExit(f"not serving {RECOVERS_S:g} s after: {act.__name__}")
            slowest = max(slowest, time.monotonic() - began)
        load.end()
    finally:
        status = service.end()
    left = service.children()
    rings = [path.name for path in Path("/dev/shm").glob(f"*{service.ring.name}*")]
    print(f"seed {options.seed}: {dict(done)}, {service.starts} starts")
    print(f"{len(expected)} prompts: {dict(load.counts)}; the service was back after {slowest:.1f} s at most")
    for line in load.wrong[:10]:
        print(f"WRONG {line}")
    print(f"exit status {status}, processes left {left}, rings left {rings}")
    return 1 if load.wrong or left or rings or not load.counts["right"] else 0


if __name__ == "__main__":
    sys.exit(main())
