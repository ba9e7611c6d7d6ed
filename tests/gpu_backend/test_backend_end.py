"""How a backend's process ends when its scheduler does: what it says, and its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from limits import PROGRAM_S
from own_time import own_s

from gpu_backend import backend
from gpu_backend.engines.base import Limits
from gpu_backend.options import BackendOptions
from gpu_backend.processors.loaded import NO_PROCESSORS
from gpu_backend.watch import Watch
from ringbuffer.abi import Control, Fault, Phase
from ringbuffer.region import Geometry

HANGS = """
import sys
from blink import backend, cli
from gpu_backend.backend import SchedulerHangs

class Context:
    def __del__(self):
        print("destructor", file=sys.__stderr__, flush=True)

def hang(*_):
    raise SchedulerHangs("the scheduler did not start: run `blink doctor`")

context, backend.run = Context(), hang
sys.exit(cli.main())
"""


class Broken:
    """A ring, and the scheduler that serves it until `die`; its last phase is what it then is in."""

    def __init__(self) -> None:
        self.address, self.geometry = 0, Geometry(16, 1, 32, 16)
        self.now: Phase | int = Phase.SERVING
        self.last: Phase | int = Phase.STOPPED
        self.over = threading.Event()
        self.controls: list[Control] = []
        self.wrong: RuntimeError | None = None
        self.beats, self.beating = 0, False
        self.hangs = False  # whatever it is told
        self.eos_ids: tuple[int, ...] = (2,)  # of its model
        self.code, self.told = 0, list[tuple[Fault, int]]()
        self.wrote = Fault.TOKEN, 7  # when it failed

    def phase(self) -> Phase | int:
        return self.now

    def heartbeat(self) -> int:
        self.beats += self.beating
        return self.beats

    def fault(self) -> tuple[int, int]:
        return self.wrote

    def stats(self) -> dict[str, int]:
        return {}

    def fail(self, fault: Fault, detail: int) -> None:
        self.told.append((fault, detail))

    def error(self) -> int:
        return self.code

    def set_control(self, control: Control) -> None:
        self.controls.append(control)
        if not self.hangs:
            self.die()

    def die(self) -> None:
        self.now = self.last
        self.over.set()

    def wait(self, timeout_s: float) -> bool:
        return self.over.wait(timeout_s)

    def close(self) -> None:
        if self.wrong:
            raise self.wrong


@pytest.mark.parametrize("ends", [True, False])
def test_a_scheduler_that_does_not_start_keeps_what_it_works_in(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """An engine that is released under a scheduler that still runs would be used after it is freed."""
    released: list[str] = []
    monkeypatch.setattr(backend, "STOP_S", 0.05)

    class Stuck(Broken):
        def set_control(self, control: Control) -> None:
            if ends:
                self.die()

    def load(self: backend.Backend, owned: ExitStack) -> None:
        owned.callback(released.append, "engine")
        stuck = Stuck()
        stuck.now = Phase.STARTING
        self.limits, self.processors = Limits(1, 2, 16, 1, 16, 1), NO_PROCESSORS
        self.config = SimpleNamespace(vocab_size=8, eos_ids=(1,))
        self.device = SimpleNamespace(
            name="fake",
            make_ring=lambda *_: (stuck, 0),
            setup=lambda *_: None,
            start=lambda *_: stuck,
        )

    monkeypatch.setattr(backend.Backend, "_load", load)
    options = BackendOptions(Path(__file__).parents[2] / "models" / "demo")
    with pytest.raises(backend.BackendError, match="did not start"):
        backend.Backend(options).start()
    assert released == (["engine"] if ends else [])


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    broken = Broken()
    released: list[str] = []
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def start(self: backend.Backend) -> None:
        self.device, self.limits, self.exchange = (
            SimpleNamespace(name="fake"),
            Limits(1, 2, 16, 1, 16, 1),
            None,
        )
        self.config = SimpleNamespace(max_context=2, scale_forms=(), eos_ids=broken.eos_ids)
        self.ring = self.scheduler = broken
        self._watch = Watch(broken, broken, ("loop",))
        self._serving, self._owned = ExitStack(), ExitStack()
        self._serving.callback(released.append, "ring")
        self._owned.callback(released.append, "engine")

    monkeypatch.setattr(backend.Backend, "start", start)
    yield broken
    assert released == ([] if broken.hangs else ["ring", "engine"])
    for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
        signal.signal(number, handler)


def run(then: Callable[[], None]) -> int:
    return backend.run(BackendOptions(Path("/model")), lambda: threading.Timer(0.1, then).start())


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_asked_to_end(broken: Broken) -> None:
    assert run(terminate) == 0
    assert broken.controls == [Control.DRAIN]


@pytest.mark.parametrize("eos_ids", [(), (2,)])
def test_a_model_whose_answers_nothing_ends_is_told(
    broken: Broken, capfd: pytest.CaptureFixture[str], eos_ids: tuple[int, ...]
) -> None:
    broken.eos_ids = eos_ids
    assert run(terminate) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert len(warnings) == (0 if eos_ids else 1)
    if warnings:
        assert "tokenizer's eos_token" in warnings[0]
        assert "every answer goes on until max_tokens" in warnings[0]


def test_a_scheduler_that_hangs_is_not_waited_for_a_second_time(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what would release its engine: the caller ends the process."""
    broken.hangs = True
    for wait in ("DRAIN_S", "STOP_S"):
        monkeypatch.setattr(backend, wait, 0.05)
    with pytest.raises(backend.SchedulerHangs, match="the scheduler did not stop in time"):
        run(terminate)
    assert broken.controls == [Control.DRAIN, Control.STOP]


def test_the_process_of_a_scheduler_that_hangs_ends_without_destructors() -> None:
    """Those of a library's objects wait for its kernels, which wait for the scheduler."""
    program = [sys.executable, "-c", HANGS, "backend", "demo", "--device=cpu"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 1
    assert done.stderr.count("the scheduler did not start") == 1
    assert "destructor" not in done.stdout + done.stderr


def test_a_scheduler_that_dies_without_a_word_is_noticed(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its CUDA context is gone: nobody is left who would write FAILED, and nothing can be released."""
    broken.last = Phase.SERVING
    broken.wrong = RuntimeError("cuStreamDestroy: CUDA_ERROR_CONTEXT_IS_DESTROYED")
    assert run(broken.die) == 1
    said = capsys.readouterr().err
    assert "the scheduler died without saying why" in said
    assert "CONTEXT_IS_DESTROYED" in said
    assert broken.controls == []


def test_a_gpu_that_fails_is_told_to_the_frontends_with_its_reason(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    """They need not wait until the heartbeat has stood still for two seconds."""
    broken.last, broken.code = Phase.SERVING, 700
    began = own_s()
    assert backend.run(BackendOptions(Path("/model")), broken.die) == 1  # another thread may wait for a core
    assert own_s() - began < 2
    assert broken.told == [(Fault.DEVICE, 700)]
    assert "the scheduler died: the GPU failed with CUDA error 700 (fault DEVICE)" in capsys.readouterr().err


def test_a_scheduler_that_beats_has_not_died(broken: Broken) -> None:
    """Whatever the stream says that it runs on."""
    broken.beating, broken.last = True, Phase.SERVING

    def pause() -> None:
        broken.die()
        time.sleep(0.5)
        terminate()

    assert run(pause) == 0
    assert broken.controls == [Control.DRAIN]


@pytest.mark.parametrize("asked", [False, True])
def test_a_fault_is_told_whenever_it_comes(
    broken: Broken, capsys: pytest.CaptureFixture[str], asked: bool
) -> None:
    """Also while the backend drains."""
    broken.last = Phase.FAILED
    assert run(terminate if asked else broken.die) == 1
    said = capsys.readouterr().err
    assert (
        said.count("the scheduler failed: step 7 sampled a token outside the vocabulary (fault TOKEN)") == 1
    )


@pytest.mark.parametrize("fault", [Fault.STEP, Fault.PROCESSOR])
def test_a_step_that_does_not_end_keeps_what_it_works_in(
    broken: Broken, capsys: pytest.CaptureFixture[str], fault: Fault
) -> None:
    """Its scheduler has ended in order, but to release the engine would wait for the step."""
    broken.last, broken.wrote, broken.hangs = Phase.FAILED, (fault, 0), True
    with pytest.raises(backend.SchedulerHangs, match="the step still runs"):
        run(broken.die)
    said = {Fault.STEP: "step 0 did not complete", Fault.PROCESSOR: "logits processor 'loop' does not end"}
    assert said[fault] in capsys.readouterr().err


def test_a_phase_that_there_is_not_ends_nothing(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever has mapped the ring can write the word; the scheduler writes it again while it lives."""

    def scribble() -> None:
        broken.now = 99
        time.sleep(0.5)
        terminate()

    assert run(scribble) == 0
    assert broken.controls == [Control.DRAIN]
    assert capsys.readouterr().err.count("the ring's phase is unknown (99)") == 1


def test_a_scheduler_that_dies_in_an_unknown_phase_is_noticed(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    broken.last = 99
    assert run(broken.die) == 1
    assert "the scheduler died without saying why" in capsys.readouterr().err
