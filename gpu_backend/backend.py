"""The provisioning plane: loads a model, captures its graphs, starts the scheduler, and waits for the end.

Between `start` and `stop` nothing here takes part in serving: on the GPU the process may be stopped and
tokens keep flowing (paper section 4.1).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gpu_backend import planes
from gpu_backend.banner import banner, default_context
from gpu_backend.engine.base import Limits
from gpu_backend.model.config import ModelConfig, UnsupportedModel
from gpu_backend.rdma.exchange_process import ExchangeFailed, ExchangeProcess
from gpu_backend.rdma.options import RdmaOptions
from gpu_backend.scheduler import Scheduler, SchedulerKind, SchedulerSetup
from gpu_backend.watch import Watch
from ringbuffer.abi import COPY_ENGINE_BYTES, MAX_SLOTS, SLOT_ALIGNMENT, Control, Phase
from ringbuffer.name import DEFAULT_NAME, RingError
from ringbuffer.region import Geometry, ModelFacts, model_fingerprint, ring_path

SMALLEST_PAGE = 16  # tokens: what a warp of decode attention reads at once
DRAIN_S = 30.0
STOP_S = 15.0
POLL_S = 0.2


class BackendError(RuntimeError):
    """The backend cannot start or cannot go on; one line that says why and what to do."""


@dataclass(frozen=True)
class BackendOptions:
    """What `blink backend` can be told. Sizes in tokens, rows or bytes as named; None chooses by device."""

    model_dir: Path
    ring: str = DEFAULT_NAME
    transport: str = "shm"  # shm, cuda_ipc
    device: str = "auto"  # auto, gpu, cpu
    gpu: int | None = None  # one that is named is asked for: device gpu
    slots: int = 1024
    leases: int = 1
    max_context: int | None = None
    max_batch: int | None = None
    max_prefill_tokens: int | None = None
    kv_memory: int | None = None
    page_size: int = 16
    threads: int | None = None
    model_name: str | None = None
    random_weights: bool = False
    scheduler: str = SchedulerKind.GPU
    rdma: RdmaOptions | None = None  # for frontends on other hosts


class Backend:
    """One served model. `start` builds it and returns once the scheduler runs; `stop` drains and ends it.

    `start` raises BackendError; what was acquired until then is released.
    """

    def __init__(self, options: BackendOptions) -> None:
        self.options = options
        self._ended = False  # the scheduler, and what it served from is released

    def start(self) -> None:
        try:
            with ExitStack() as owned:
                self._load(owned)
                self._serve(SchedulerKind(self.options.scheduler))
                self._owned = owned.pop_all()
        except (
            UnsupportedModel, RingError, planes.PlaneError, ExchangeFailed, FileNotFoundError, ValueError,
        ) as error:  # fmt: skip
            raise BackendError(str(error)) from error

    def _load(self, owned: ExitStack) -> None:
        options = self.options
        config = ModelConfig.from_directory(options.model_dir)
        plane = planes.choose(options.device, options.gpu)
        owned.callback(plane.close)
        limits = plane.limits(config, wanted_limits(options, config, plane.defaults), options.kv_memory)
        engine = plane.build_engine(
            config, options.model_dir, limits, options.random_weights, options.threads
        )
        owned.callback(engine.close)
        self.config, self.limits, self.plane = config, limits, plane

    def _serve(self, kind: SchedulerKind) -> None:
        """A ring, and a scheduler between it and the engine."""
        self.kind = kind
        options, limits, plane = self.options, self.limits, self.plane
        if kind.host_driven and options.transport != "shm":
            raise ValueError(
                f"the scheduler {kind} runs on the host and reads the ring there: --transport must be shm, "
                f"not {options.transport}"
            )
        geometry = Geometry(
            rounded_slots(options.slots, options.leases),
            options.leases,
            prompt_capacity(options.transport, limits.max_context),
            limits.max_context,
        )
        facts = ModelFacts(
            model_fingerprint(options.model_dir),
            options.model_name or options.model_dir.resolve().name,
            plane.name,
            self.config.vocab_size,
            limits.max_context,
            limits.max_batch,
            limits.total_pages,
            limits.page_size,
        )
        self.exchange: ExchangeProcess | None = None
        with ExitStack() as owned:
            self.ring, ring_address = plane.make_ring(
                options.transport, ring_path(options.ring), geometry, facts, owned
            )
            if options.rdma is not None:  # before the scheduler, which nothing would stop if this fails
                path, exported = ring_path(options.ring), plane.export_ring(self.ring)
                self.exchange = ExchangeProcess(path, options.rdma, exported)
                owned.callback(self.exchange.close)
            seen = self.ring.address if kind.host_driven else ring_address
            self.setup: SchedulerSetup = plane.setup(geometry, seen, limits, kind)
            self.scheduler: Scheduler = plane.start(self.setup, kind)
            self._serving = owned.pop_all()
            self._watch = Watch(self.ring, self.scheduler)
        self._ended = False
        if not _wait_for(lambda: _has_started(self.ring.phase()), STOP_S):
            raise BackendError("the scheduler did not start: run `blink doctor`")

    def serving(self) -> bool:
        """False once the scheduler has given up or ended, whoever ended it."""
        return self.fault() is None and self.ring.phase() != Phase.STOPPED

    def fault(self) -> str | None:
        """Why the scheduler gave up or died, or None; after `stop`, why it had until then."""
        return self._watch.fault()

    def stop(self, drain_s: float = DRAIN_S, hurry: Callable[[], bool] = lambda: False) -> bool:
        """Lets open requests finish for `drain_s` seconds or until `hurry`, then ends the rest.

        False: the scheduler hangs. It then keeps its resources: releasing them would wait for it.
        """
        try:
            ended = self._end(drain_s, hurry)
        finally:
            if self._ended:
                self._owned.close()
        return ended

    def change_scheduler(self, kind: SchedulerKind) -> None:
        """Ends the scheduler that runs, and starts one over the same engine, with a new ring of that name.

        For comparisons, which need not load the model again. Raises BackendError.
        """
        if not self._end(0.0, lambda: False):
            raise BackendError("the scheduler did not stop in time")
        try:
            self._serve(kind)
        except (RingError, planes.PlaneError, ExchangeFailed, ValueError) as error:
            raise BackendError(str(error)) from error

    def _end(self, drain_s: float, hurry: Callable[[], bool]) -> bool:
        stopped = self.fault() is not None and self.scheduler.wait(STOP_S)
        if not stopped:
            self.ring.set_control(Control.DRAIN)
        deadline = time.monotonic() + drain_s
        while not (stopped or hurry() or time.monotonic() >= deadline):
            stopped = self.scheduler.wait(POLL_S)
        if not stopped:
            self.ring.set_control(Control.STOP)
            if not self.scheduler.wait(STOP_S):
                return False
        self.fault()
        self._watch.end()
        self._ended = True
        try:
            self.scheduler.close()
        finally:
            self._serving.close()
        return True


def _has_started(phase: Phase | int) -> bool:
    return isinstance(phase, Phase) and phase is not Phase.STARTING


def _wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return True
        pause.wait(0.01)
    return condition()


def rounded_slots(slots: int, leases: int) -> int:
    """At least `slots`, divided evenly among the leases in whole lines (R5)."""
    share = leases * SLOT_ALIGNMENT
    rounded = -(-slots // share) * share
    if not slots >= 1 or rounded > MAX_SLOTS:
        raise ValueError(f"slots is {slots} for {leases} lease(s), it must be between 1 and {MAX_SLOTS}")
    return rounded


def prompt_capacity(transport: str, max_context: int) -> int:
    """Tokens of a slot's prompt arena: the context, and in GPU memory room for the smallest good copy."""
    return max(max_context, COPY_ENGINE_BYTES // 4) if transport == "cuda_ipc" else max_context


def wanted_limits(options: BackendOptions, config: ModelConfig, defaults: planes.Defaults) -> Limits:
    """Limits before the KV cache is sized (`total_pages` 0). Raises ValueError for what cannot be."""
    context = options.max_context or default_context(config)
    if not 2 <= context <= config.max_context:
        raise ValueError(
            f"max-context is {context}, the model was trained for 2 to {config.max_context} tokens"
        )
    if options.page_size < SMALLEST_PAGE or options.page_size & (options.page_size - 1):
        raise ValueError(
            f"page-size is {options.page_size}, it must be a power of two from {SMALLEST_PAGE} on"
        )
    batch = options.max_batch or defaults.max_batch
    if not 1 <= batch <= 1024:
        raise ValueError(f"max-batch is {batch}, it must be between 1 and 1024")
    prefill = options.max_prefill_tokens or min(defaults.max_prefill_tokens, -(-context // 16) * 16)
    if prefill < 16 or prefill % 16:
        raise ValueError(f"max-prefill-tokens is {prefill}, it must be a multiple of 16")
    return Limits(batch, context, prefill, min(defaults.max_prefill_lanes, batch), options.page_size, 0)


def run(options: BackendOptions, ready: Callable[[], None]) -> int:
    """Serves until SIGTERM or SIGINT, drains, and returns the exit code. A second signal ends at once.

    `ready` is called once the scheduler runs.
    """
    signals: list[int] = []
    woken = threading.Event()

    def on_signal(number: int, _: object) -> None:
        signals.append(number)
        woken.set()

    backend = Backend(options)
    backend.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    planes.say(banner(backend))
    if backend.exchange is not None:
        planes.say(f"frontends on other hosts set themselves up at {backend.exchange.address}")
    ready()
    while not signals and backend.serving():
        woken.wait(POLL_S)
        if backend.exchange is not None and (told := backend.exchange.look()):
            planes.say(told)
    if not signals:
        planes.say(backend.fault() or "the scheduler stopped")
    return 1 if not _stop(backend, lambda: len(signals) > 1) or backend.fault() else 0


def _stop(backend: Backend, hurry: Callable[[], bool]) -> bool:
    """Stops, and says what goes wrong meanwhile. True when the scheduler has ended and all was released."""
    known = backend.fault()
    try:
        stopped = backend.stop(0.0 if known else DRAIN_S, hurry)
    except RuntimeError as error:  # a lost GPU takes nothing back
        planes.say(f"not everything could be released: {error}")
        return False
    if not stopped:
        planes.say("the scheduler did not stop in time")
    if (fault := backend.fault()) and not known:
        planes.say(fault)
    return stopped
