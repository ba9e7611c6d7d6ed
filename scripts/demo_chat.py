"""Asks a starting server the demo's questions and prints the answers as they stream: demo_chat.py PID LOG

PID and LOG are the server's process and the file that its output goes to. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START_TIMEOUT_S = 600.0
ANSWER_TIMEOUT_S = 60.0
QUESTIONS = (
    "Hello, who are you?",
    "What is 417 + 286?",
    "Sort these words alphabetically: river, apple, stone, cloud.",
    "Count from 1 to 40.",
    "Tell me a story about a fox named Mia.",
)


def wait_for_address(pid: int, log: Path) -> str:
    """HOST:PORT of the server once it says that it is ready. Exits with its output when it ends before."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        text = log.read_text()
        ready = re.search(r"ready after .* at http://(\S+)/v1", text)
        if ready:
            return ready[1]
        if not _runs(pid):
            break
        time.sleep(0.1)
    sys.exit(f"{text}demo: the server did not start; its output is above")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def check_health(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=ANSWER_TIMEOUT_S)
    connection.request("GET", "/health")
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"demo: /health answered {response.status}: {response.read().decode()}")
    connection.close()


def ask(address: str, question: str) -> Iterator[str]:
    """The pieces of a greedy answer, as they come."""
    body = {"messages": [{"role": "user", "content": question}], "stream": True, "temperature": 0}
    connection = http.client.HTTPConnection(address, timeout=ANSWER_TIMEOUT_S)
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"demo: the server answered {response.status}: {response.read().decode()}")
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    connection.close()


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__, end="")
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    address = wait_for_address(int(sys.argv[1]), Path(sys.argv[2]))
    check_health(address)
    for question in QUESTIONS:
        print(f"\n> {question}\n", end="", flush=True)
        began, n_pieces = time.perf_counter(), 0
        for piece in ask(address, question):
            print(piece, end="", flush=True)
            n_pieces += bool(piece)
        print(f"\n  [{n_pieces} pieces in {time.perf_counter() - began:.2f} s]")


if __name__ == "__main__":
    main()
