"""A fault of the GPU, made by a build of the kernels in which one token's embedding is read from nowhere: the
scheduler dies with its context, its frontends are told within two seconds, and why. `blink serve` starts the
backend again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from free_port import free_port
from http_server import serve_http
from serving import Demo, items, wait_for_ring

from ringbuffer.abi import Fault, Phase
from ringbuffer.fault import describe
from ringbuffer.region import Region

ROOT = Path(__file__).resolve().parents[2]
FAULTY = 1023  # the token
WITHIN_S = 2.0
AGAIN_S = 60.0
LINE = "  const Half* source = padding ? nullptr : table + uint64_t(token_id(set, tables, i)) * hidden;\n"
BROKEN = (
    LINE
    + f"  if (!padding && token_id(set, tables, i) == {FAULTY}) source = reinterpret_cast<const Half*>(16);\n"
)
# Read by every Python that is started with this directory on its path.
SITE = """
import gpu_backend.cuda.compile as compile
from pathlib import Path
compile.source_root = lambda: Path({sources!r})
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that compiles the broken kernels."""
    directory = tmp_path_factory.mktemp("broken")
    for name in ("kernels", "ringbuffer"):
        # Without what other tests may write while it is copied.
        shutil.copytree(
            ROOT / name, directory / "sources" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    embed = directory / "sources" / "kernels" / "ops" / "embed.h"
    text = embed.read_text()
    assert LINE in text
    embed.write_text(text.replace(LINE, BROKEN))
    (directory / "sitecustomize.py").write_text(SITE.format(sources=str(directory / "sources")))
    own = os.environ.get("PYTHONPATH")  # where the packages may be that blink needs
    path = [str(directory), str(ROOT), *([own] if own else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


@contextmanager
def backend(environment: dict[str, str], name: str) -> Iterator[tuple[subprocess.Popen[bytes], Region]]:
    command = [sys.executable, "-m", "blink", "backend", "demo", "--device", "gpu", "--ring", name]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)
    try:
        region = wait_for_ring(process, name)
        yield process, region
        region.close()
    finally:
        process.kill()
        process.wait()
        Path(f"/dev/shm/blink-{name}").unlink(missing_ok=True)


def test_an_illegal_address_ends_in_failed_within_two_seconds_with_the_reason(broken: dict[str, str]) -> None:
    with backend(broken, "gpu-fault") as (process, region):
        demo = Demo(region)
        chosen = items(("add", "reverse"), 8)
        assert sum(demo.right(item, s) for item, s in zip(chosen, demo.answer(chosen), strict=True)) >= 7
        demo.client.submit([5, FAULTY, 7], 8)
        began = time.monotonic()
        while region.phase() != Phase.FAILED:
            assert time.monotonic() - began < WITHIN_S, f"still {region.phase()}"
            time.sleep(0.01)
        fault, detail = region.fault()
        print(f"FAILED after {time.monotonic() - began:.2f} s: {describe(fault, detail)}")
        assert fault == Fault.DEVICE
        assert detail != 0
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait(60) == 1
        assert f"the GPU failed with CUDA error {detail} (fault DEVICE)" in said
        demo.client.close()  # whose thread looks at the ring


def test_open_streams_are_told(broken: dict[str, str]) -> None:
    """Through the API: an event of the stream that runs beside the fault, and 503 afterwards."""
    with backend(broken, "gpu-fault-http"):
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "blink",
            "frontend",
            "demo",
            "--ring",
            "gpu-fault-http",
            f"--port={port}",
        ]
        frontend = subprocess.Popen(command, cwd=ROOT)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                deadline = time.monotonic() + 60
                while True:
                    try:
                        if client.get("/health").status_code == 200:
                            break
                    except httpx.TransportError:
                        assert time.monotonic() < deadline
                        time.sleep(0.1)
                body = {
                    "prompt": "Count from 1 to 200.",
                    "max_tokens": 1500,
                    "stream": True,
                    "ignore_eos": True,
                }
                with client.stream("POST", "/v1/completions", json=body) as stream:
                    lines = (line for line in stream.iter_lines() if line)
                    next(lines)
                    began = time.monotonic()
                    with httpx.Client(base_url=client.base_url, timeout=60) as other:
                        failed = other.post("/v1/completions", json={"prompt": [5, FAULTY], "max_tokens": 4})
                    *_, error, done = lines
                    took = time.monotonic() - began
                assert failed.status_code == 503
                assert "the GPU failed" in failed.json()["error"]["message"]
                assert "the GPU failed" in json.loads(error.removeprefix("data: "))["error"]["message"]
                assert done == "data: [DONE]"
                assert took < WITHIN_S
                assert client.get("/health").status_code == 503
        finally:
            frontend.terminate()
            frontend.wait(30)


def test_the_supervisor_serves_again(broken: dict[str, str]) -> None:
    """Who asks meanwhile gets 503 with Retry-After. Then the answer is that of before."""
    body = {"prompt": "Count from 1 to 9.", "max_tokens": 16, "temperature": 0}
    with serve_http(environment=broken) as url, httpx.Client(base_url=url, timeout=60) as client:
        before = client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]["text"]
        began = time.monotonic()
        failed = client.post("/v1/completions", json={"prompt": [5, FAULTY], "max_tokens": 4})
        assert failed.status_code == 503
        told = time.monotonic() - began
        refused: list[httpx.Response] = []
        while (answer := client.post("/v1/completions", json=body)).status_code != 200:
            refused.append(answer)
            assert time.monotonic() - began < AGAIN_S, answer.text
            time.sleep(0.1)
        print(f"told after {told:.2f} s, served again after {time.monotonic() - began:.1f} s")
        assert told < WITHIN_S
        assert refused
        assert all(r.status_code == 503 and r.headers["retry-after"] for r in refused)
        assert answer.json()["choices"][0]["text"] == before
