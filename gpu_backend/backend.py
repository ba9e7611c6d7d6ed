"""The provisioning plane: loads a model, captures its graphs, starts the scheduler, and waits for the end.

Between `start` and `stop` nothing here takes part in serving: on the GPU the process may be stopped and
tokens keep flowing (paper section 4.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from gpu_backend.banner import NO_END, banner
from gpu_backend.devices.base import DeviceError
from gpu_backend.devices.select import select_device
from gpu_backend.engines.base import EngineError
from gpu_backend.messages import say
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.options import BackendOptions, described_model, wanted_limits
from gpu_backend.processors.loaded import load
from gpu_backend.rdma.exchange_process import ExchangeFailed, ExchangeProcess
from gpu_backend.ring_sizes import ring_geometry
from gpu_backend.schedulers.base import Scheduler, SchedulerKind
from gpu_backend.schedulers.setup import SchedulerSetup
from gpu_backend.signals import Signals
from gpu_backend.watch import Watch
from ringbuffer.abi import Control, Phase
from ringbuffer.name import RingError
from ringbuffer.region import ModelFacts, model_fingerprint, ring_path

DRAIN_S = 30.0
STOP_S = 15.0
POLL_S = 0.2


class BackendError(RuntimeError):
    """The backend cannot start or cannot go on; one line that says why and what to do."""


class SchedulerHangs(BackendError):
    """The scheduler does not end, or a step does not. The process must, without destructors: those of a
    library whose kernels are in the steps would wait for it."""


class Backend:
    """One served model. `start` builds it and returns once the scheduler runs; `stop` drains and ends it.

    `start` raises BackendError; what was acquired until then is released, but for what a
    scheduler that does not end still works in.
    """

    def __init__(self, options: BackendOptions) -> None:
        self.options = options
        self._ended = False  # the scheduler, and what it served from is released

    def start(self) -> None:
        try:
            with ExitStack() as owned:
                self._load(owned)
                try:
                    self._serve(SchedulerKind(self.options.scheduler))
                except SchedulerHangs:
                    owned.pop_all()  # its engine must not be released under it
                    raise
                self._owned = owned.pop_all()
        except (
            UnsupportedModel, RingError, DeviceError, EngineError, ExchangeFailed, FileNotFoundError,
            ValueError,
        ) as error:  # fmt: skip
            raise BackendError(str(error)) from error

    def _load(self, owned: ExitStack) -> None:
        options = self.options
        config = described_model(options, say)
        device = select_device(options.device, options.gpu, options.engine)
        owned.callback(device.close)
        wanted = wanted_limits(options, config, device.defaults)
        processors = load(options.logits_processors, config.vocab_size, device.capability)
        limits = device.limits(config, wanted, options.kv_memory, options.host_kv_memory)
        engine = device.build_engine(
            config, options.model_dir, limits, options.random_weights, options.threads, processors
        )
        owned.callback(engine.close)
        self.config, self.limits, self.device, self.processors = config, limits, device, processors

    def _serve(self, kind: SchedulerKind) -> None:
        """A ring, and a scheduler between it and the engine."""
        self.kind = kind
        options, limits, device = self.options, self.limits, self.device
        if kind.host_driven and options.transport != "shm":
            raise ValueError(
                f"the scheduler {kind} runs on the host and reads the ring there: --transport must be shm, "
                f"not {options.transport}"
            )
        geometry = ring_geometry(options, limits)
        facts = ModelFacts(
            model_fingerprint(options.model_dir),
            options.model_name or options.model_dir.resolve().name,
            device.name,
            self.config.vocab_size,
            limits.max_context,
            limits.max_batch,
            limits.total_pages,
            limits.page_size,
            limits.grammar_words,
            limits.max_prefill_tokens,
            limits.priorities,
            self.config.eos_ids,
            self.processors.names,
        )
        self.exchange: ExchangeProcess | None = None
        with ExitStack() as owned:
            self.ring, ring_address = device.make_ring(
                options.transport, ring_path(options.ring), geometry, facts, owned
            )
            if options.rdma is not None:  # before the scheduler, which nothing would stop if this fails
                path, exported = ring_path(options.ring), device.export_ring(self.ring)
                self.exchange = ExchangeProcess(path, options.rdma, exported)
                owned.callback(self.exchange.close)
            seen = self.ring.address if kind.host_driven else ring_address
            self.setup: SchedulerSetup = device.setup(geometry, seen, limits, kind)
            self.scheduler: Scheduler = device.start(self.setup, kind)
            self._serving = owned.pop_all()
            self._watch = Watch(self.ring, self.scheduler, self.processors.names)
        self._ended = False
        if not _wait_for(lambda: _has_started(self.ring.phase()), STOP_S):
            message = "the scheduler did not start: run `blink doctor`"
            raise BackendError(message) if self._end(0.0, lambda: True) else SchedulerHangs(message)

    def serving(self) -> bool:
        """False once the scheduler has given up or ended, whoever ended it."""
        return self.fault() is None and self.ring.phase() != Phase.STOPPED

    def fault(self) -> str | None:
        """Why the scheduler gave up or died, or None; after `stop`, why it had until then."""
        return self._watch.fault()

    def beats(self) -> bool:
        """Whether the scheduler's heartbeat has changed since this was asked last."""
        return self._watch.beats()

    def stop(self, drain_s: float = DRAIN_S, hurry: Callable[[], bool] = lambda: False) -> bool:
        """Lets open requests finish for `drain_s` seconds or until `hurry`, then ends the rest.

        False: the scheduler hangs, or a step that it has given up. They then keep their resources: releasing
        them would wait for it.
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
        except (RingError, DeviceError, ExchangeFailed, ValueError) as error:
            raise BackendError(str(error)) from error

    def _end(self, drain_s: float, hurry: Callable[[], bool]) -> bool:
        if self._watch.step_runs_on():
            return False
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
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def run(
    options: BackendOptions,
    ready: Callable[[], None],
    lives: Callable[[], None] = lambda: None,
    on_hangup: Callable[[], None] = lambda: None,
) -> int:
    """Serves until SIGTERM or SIGINT, drains, and returns the exit code. A second signal ends at once.

    `ready` is called once the scheduler runs, `lives` again and again while its heartbeat changes, and
    `on_hangup` after SIGHUP. Raises BackendError where it does not start, and SchedulerHangs.
    """
    backend = Backend(options)
    backend.start()
    with Signals(on_hangup) as signals:
        say(banner(options, backend.config, backend.limits, backend.ring.geometry, backend.device.name))
        if not backend.config.eos_ids:
            say(NO_END)
        if backend.exchange is not None:
            say(f"frontends on other hosts set themselves up at {backend.exchange.address}")
        ready()
        while not signals.count() and backend.serving():
            signals.wait(POLL_S)
            if backend.beats():
                lives()
            if backend.exchange is not None and (told := backend.exchange.look()):
                say(told)
        if not signals.count():
            say(backend.fault() or "the scheduler stopped")
        return 1 if not _stop(backend, lambda: signals.count() > 1) or backend.fault() else 0


def _stop(backend: Backend, hurry: Callable[[], bool]) -> bool:
    """Stops, and says what goes wrong meanwhile. Whether all was released. Raises SchedulerHangs."""
    known = backend.fault()
    try:
        stopped = backend.stop(0.0 if known else DRAIN_S, hurry)
    except RuntimeError as error:  # a lost GPU takes nothing back
        say(f"not everything could be released: {error}")
        return False
    if (fault := backend.fault()) and not known:
        say(fault)
    if not stopped:
        hangs = (
            "the step still runs, and nothing can be released"
            if fault
            else "the scheduler did not stop in time"
        )
        raise SchedulerHangs(hangs)
    return True
