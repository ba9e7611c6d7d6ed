"""A newcomer's first ten minutes, from a clean clone, as they went: writes docs/first-ten-minutes.md.

    python scripts/first_minutes.py [FILE]

Every command below is run, and what it printed goes into the page: shortened where it is long, with the
clone's directory named ~/blink. It needs what scripts/setup needs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "first-ten-minutes.md"
SHOWN_LINES = 34
MOST_COLUMNS = 420
READY_S = 120.0
HEAD = """# The first ten minutes

This page is a transcript: `scripts/first_minutes.py` ran these commands in a clean clone{where} and wrote
down what they printed. Long outputs are shortened (`[...]`).
"""


@dataclass(frozen=True)
class Step:
    """What is told, and the commands. `serves` starts a server, which the later steps talk to."""

    title: str
    text: str
    commands: tuple[str, ...] = ()
    serves: str | None = None
    shows_server: bool = False  # what it has printed since it was started


JSON = "-H 'content-type: application/json'"
ASKED = """{"messages": [{"role": "user", "content": "What is 417 + 286?"}], "temperature": 0}"""
STREAMED = ASKED.replace("}],", '}], "stream": true,')
FUNCTION = (
    """{"name": "get_weather", "parameters": {"type": "object", "required": ["city"], """
    """"properties": {"city": {"enum": ["Paris", "Rome"]}}}}"""
)
WITH_TOOL = ASKED.replace("What is 417 + 286?", "What is the weather in Paris?").replace(
    "}],", f"""}}], "tools": [{{"type": "function", "function": {FUNCTION}}}], "tool_choice": "required","""
)
CHAT = f"http://127.0.0.1:8000/v1/chat/completions {JSON} -d"
COMPLETE = (
    f"curl -si http://127.0.0.1:8001/v1/completions {JSON} -H 'authorization: Bearer a-long-secret' "
    """-d '{"prompt": "Hello", "max_tokens": 4}'"""
)
WRONG = f"""curl -s http://127.0.0.1:8000/v1/completions {JSON} -d '{{"prompt": "x", "top_p": 3}}'"""
KEYS = """'[[key]]' 'name = "team-a"' 'key = "a-long-secret"' 'requests-per-minute = 1'"""
FLAGS = "'model: demo' 'port: 8001' 'api-keys: keys.toml' 'log-requests: true'"
NAMES = "generation_tokens|num_requests|request_queue.*(sum|count)"
STEPS = (
    Step(
        "Does it work here?",
        "One script sets everything up, serves the small model that comes with Blink, and asks it something.",
        ("scripts/demo",),
    ),
    Step("What can this machine do?", "", ("export PATH=$PWD/.venv/bin:$PATH", "blink doctor")),
    Step("A server", "It stays up until Ctrl-C.", serves="blink serve demo"),
    Step(
        "Ask it",
        "From another terminal:",
        (f"curl -s {CHAT} '{ASKED}'", "curl -s http://127.0.0.1:8000/v1/models"),
    ),
    Step(
        "Ask it for a stream",
        "Any client of OpenAI's API will do; curl shows the events.",
        (f"curl -sN {CHAT} '{STREAMED}' | head -n 7",),
    ),
    Step(
        "Give it a tool",
        "The demo model was not trained to call tools, but it can be made to: a grammar holds its answer.",
        (f"curl -s {CHAT} '{WITH_TOOL}'",),
    ),
    Step(
        "How fast is it?",
        "On a CPU this measures the emulation, which serves tests; the same command measures a GPU.",
        ("blink bench serve http://127.0.0.1:8000 --concurrency 1,4 --input 64 --output 32 --duration 6",),
    ),
    Step(
        "What does it count?",
        "`http://127.0.0.1:8000/` in a browser is a chat beside the machine, live. For Prometheus:",
        (f"curl -s http://127.0.0.1:8000/metrics | grep -E '^blink:({NAMES})'",),
    ),
    Step("Meanwhile, in the server's terminal", "", shows_server=True),
    Step(
        "Mistakes",
        "What is wrong is said in one line, with what would be right.",
        (
            "blink serve demo --max-batsh 8",
            "blink serve demo --kv-memory 8",
            "blink serve demo --gpu-memory-utilization 0.9",
            "blink serve demo",
            "blink serve ./demo",
            "blink backend demo --max-context 100000",
            WRONG,
        ),
    ),
    Step(
        "As an operator",
        "Flags in a file, keys with limits, a log for programs:",
        (f"printf '%s\\n' {KEYS} > keys.toml", f"printf '%s\\n' {FLAGS} > blink.yaml"),
        serves="blink serve --config blink.yaml --log-format json",
    ),
    Step(
        "Who may ask, and how often",
        "",
        ("curl -s http://127.0.0.1:8001/v1/models", COMPLETE, COMPLETE),
    ),
    Step("And in its log", "", shows_server=True),
)


class Newcomer:
    """Runs steps in `clone`, with what the ones before have exported."""

    def __init__(self, clone: Path) -> None:
        self._clone = clone
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BLINK_", "VIRTUAL_ENV"))}
        self._environment = {**environment, "PATH": f"{clone}/.venv/bin:{os.environ['PATH']}"}
        self._servers: list[tuple[subprocess.Popen[bytes], Path]] = []

    def tell(self, step: Step) -> str:
        """The step's part of the page."""
        parts = [f"## {step.title}", step.text]
        parts += [self._run(command) for command in step.commands]
        if step.serves:
            parts.append(self._serve(step.serves))
        if step.shows_server:
            parts.append(block(self._shorten(self._servers[-1][1].read_text())))
        return "\n\n".join(filter(None, parts))

    def _run(self, command: str) -> str:
        if command.startswith("export "):  # it is in our environment already
            return block(f"$ {command}")
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=self._clone, env=self._environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        took = time.monotonic() - began
        note = f"\n\nThat took {took:.0f} s." if took >= 5 else ""
        return block(f"$ {command}\n{self._shorten(done.stdout)}") + note

    def _serve(self, command: str) -> str:
        log = self._clone / f"server-{len(self._servers)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self._clone, env=self._environment, stderr=output,
                stdout=output,
            )  # fmt: skip
        self._servers.append((process, log))
        deadline = time.monotonic() + READY_S
        while "ready after" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.1)
        return block(f"$ {command}\n{self._shorten(log.read_text())}")

    def _shorten(self, output: str) -> str:
        lines = output.replace("\r", "").replace(str(self._clone), "~/blink").rstrip().splitlines()
        if len(lines) > SHOWN_LINES:
            half = SHOWN_LINES // 2
            lines = [*lines[:half], "[...]", *lines[-half:]]
        return "\n".join(
            line if len(line) <= MOST_COLUMNS else f"{line[:MOST_COLUMNS]} [...]" for line in lines
        )

    def close(self) -> None:
        for process, _ in self._servers:
            process.send_signal(signal.SIGINT)
            process.wait()


def block(text: str) -> str:
    return f"```console\n{text.rstrip()}\n```"


def main() -> None:
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch) / "blink"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        newcomer = Newcomer(clone)
        began = time.monotonic()
        try:
            parts = [newcomer.tell(step) for step in STEPS]
        finally:
            newcomer.close()
        minutes = (time.monotonic() - began) / 60
    where = f" on {os.cpu_count()} cores without a GPU" if not Path("/dev/nvidia0").exists() else ""
    end = f"All of this took {minutes:.1f} minutes."
    page.write_text("\n\n".join([HEAD.format(where=where).rstrip(), *parts, end]) + "\n")


if __name__ == "__main__":
    main()
