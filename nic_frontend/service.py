"""A frontend, put together: one ring, one lease, one model, and who owns what."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from nic_frontend.api.background import Background
from nic_frontend.api.limits import Limits
from nic_frontend.api.memory import Memory
from nic_frontend.api.sampling_defaults import read_defaults
from nic_frontend.api.served import Served
from nic_frontend.compiling.store import Grammars
from nic_frontend.errors import ending
from nic_frontend.harmony.chosen import open_harmony, speaks_harmony
from nic_frontend.harmony.form import HarmonyForms
from nic_frontend.http.bodies import Bodies
from nic_frontend.http.key_budgets import BUDGET_BYTES, KeyBudgets
from nic_frontend.http.keys import Keys
from nic_frontend.observe.exposition import Exposition, Seen
from nic_frontend.observe.live import Live
from nic_frontend.observe.metrics import Figures, Metrics
from nic_frontend.observe.reporter import Reporter
from nic_frontend.observe.shared_figures import FIGURES_BYTES, SharedFigures
from nic_frontend.observe.tracing import open_tracer
from nic_frontend.options import FrontendOptions, VerbsRing
from nic_frontend.parsing.answer_form import AnswerForms
from nic_frontend.parsing.registry import choose
from nic_frontend.processes.watchdog import Watchdog
from nic_frontend.ring.backend_monitor import BackendMonitor
from nic_frontend.ring.host_segment import HostSegment, segment_path
from nic_frontend.ring.lease import Lease, phase_name
from nic_frontend.ring.request_tracker import RequestTracker
from nic_frontend.ring.ring_thread import RingThread
from nic_frontend.ring.scrubber import Scrubber
from nic_frontend.ring.slot_tracker import SlotTracker
from nic_frontend.ring.token_reader import TokenReader
from nic_frontend.store.records import Bounds as StoreBounds
from nic_frontend.store.seal import Seal
from nic_frontend.store.seal_key import read_seal_key
from nic_frontend.store.store import Store
from nic_frontend.templates.renderer import Bounds, Renderer, open_renderer
from nic_frontend.text.tokenizer import Tokenizer
from nic_frontend.text.tokenizer_trial import try_tokenizer
from nic_frontend.transport.base import Transport, TransportError, read_header
from nic_frontend.transport.cuda_ipc import CudaIpc
from nic_frontend.transport.shm import SharedMemory
from ringbuffer import abi, device_ring, processors
from ringbuffer.fault import describe
from ringbuffer.heap import Place
from ringbuffer.name import RingError
from ringbuffer.region import model_fingerprint
from ringbuffer.words import text

log = logging.getLogger(__name__)

ATTACH_POLL_S = 0.05
CONNECT_POLL_S = 1.0  # between attempts to reach a backend on another host
RELEASE_TIMEOUT_S = 2.0
WARM_UP_S = 1.0  # from the start until processes that compile grammars start, if none was needed before


def open_transport(ring: Path | VerbsRing, model_dir: Path) -> Transport:
    if isinstance(ring, Path):
        return open_local(ring)
    from nic_frontend.transport.verbs import Verbs  # not at the top: only this transport loads libibverbs

    return Verbs(ring, model_fingerprint(model_dir))


def attach(ring: Path | VerbsRing, model_dir: Path, timeout_s: float) -> Transport:
    """Attaches to the ring once its scheduler serves.

    Raises TransportError with what was missing when the time is over.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = ATTACH_POLL_S if isinstance(ring, Path) else CONNECT_POLL_S
    told = ""
    while True:
        try:
            with contextlib.ExitStack() as opened:
                transport = open_transport(ring, model_dir)
                opened.callback(transport.close)
                missing = why_not_serving(transport)
                if missing is None:
                    opened.pop_all()
                    return transport
        except TransportError as error:
            missing = str(error)
        if time.monotonic() > deadline:
            raise TransportError(missing)
        if missing != told:
            log.info("waiting: %s", missing)
            told = missing
        time.sleep(pause_s)


def open_local(path: Path) -> Transport:
    """The transport that reaches the ring whose file is at `path`. Raises TransportError."""
    try:
        in_gpu_memory = device_ring.read(path) is not None
    except RingError as error:
        raise TransportError(str(error)) from error
    return CudaIpc(path) if in_gpu_memory else SharedMemory(path)


def why_not_serving(transport: Transport) -> str | None:
    """What the scheduler lacks; None when it serves and its heartbeat changes."""
    before = read_header(transport)
    if before["phase"] == abi.Phase.FAILED:
        names = processors.unpacked(before["processor_names"].tobytes())
        return f"the scheduler failed: {describe(int(before['fault']), int(before['fault_detail']), names)}"
    if (phase := phase_name(before)) != abi.Phase.SERVING.name:
        return f"the scheduler is in phase {phase}, not SERVING"
    time.sleep(ATTACH_POLL_S)
    if read_header(transport)["heartbeat"] == before["heartbeat"]:
        return "the scheduler's heartbeat stands still: its backend has ended or hangs"
    return None


def check_fingerprint(transport: Transport, model_dir: Path) -> None:
    """Raises TransportError when the backend serves another model than `model_dir`."""
    header = read_header(transport)
    if header["fingerprint"].tobytes() != model_fingerprint(model_dir):
        raise TransportError(
            f"the ring serves another model ({text(header['model_name'].tobytes())}) than {model_dir}: "
            "config.json or tokenizer.json differ from the backend's"
        )


class Service:
    """Owns the transport, the lease and the reader. Construct it before the event loop runs, `start` it on
    the loop, `close` it last. Calls `on_given_up` when it can never serve again, and `given_up` says why.

    Raises TransportError when the ring cannot be used, FileNotFoundError or ValueError when the model's files
    cannot.
    """

    def __init__(self, options: FrontendOptions) -> None:
        self.options = options
        self.keys = Keys(options.api_key, options.api_keys)
        with contextlib.ExitStack() as owned:  # closes what was made last first, also when this fails
            self.transport = attach(options.ring, options.model_dir, options.attach_timeout_s)
            owned.callback(self.transport.close)
            check_fingerprint(self.transport, options.model_dir)
            self._header = header = read_header(self.transport)
            self.model = options.served_model_name or text(header["model_name"].tobytes())
            self.model_names = tuple(dict.fromkeys((self.model, *options.model_aliases)))
            try_tokenizer(options.model_dir, int(header["vocab_size"]))
            self.tokenizer = Tokenizer(options.model_dir, int(header["vocab_size"]))
            self.sampling_defaults = read_defaults(options.model_dir)
            self.tracer = open_tracer(options.otlp_traces_endpoint, self.model)
            if self.tracer is not None:
                owned.callback(self.tracer.close)
            self.lease = Lease(self.transport)
            names = ("max_context", "prompt_heap", "output_heap", "vocab_size")
            self.limits = Limits(
                **{name: int(header[name]) for name in names},
                max_choices=min(options.max_choices, self.lease.n_slots),
                priorities=bool(header["priorities"]),
                eos_ids=tuple(header["eos"][: int(header["n_eos"])].tolist()),
                processors=processors.unpacked(header["processor_names"].tobytes()),
            )
            self.bodies, self.metrics = Bodies(options.body_memory_bytes), Metrics()
            longest_grammar = min(int(header["max_grammar_words"]), self.limits.prompt_heap // 2)
            self.grammars = Grammars(longest_grammar, self.metrics, self.tokenizer.special_texts)
            owned.callback(self.grammars.close)
            self._serve_model(owned)
            self._remember(owned)
            self.lease.acquire(options.grant_timeout_s)
            owned.callback(self.lease.give_back)
            self._ring_thread = RingThread()
            owned.callback(self._ring_thread.close)  # before the lease is given back, which it may ask for
            self._share_figures(owned)
            self._reader = TokenReader(self.transport, self.lease, options)
            owned.callback(self._reader.close)
            self._reader.open()
            self._track(owned)
            self._owned = owned.pop_all()
        self._tasks: list[asyncio.Task[None]] = []
        self._looking: asyncio.Future[None] | None = None
        self._warming: asyncio.TimerHandle
        self.given_up: str | None = None
        self.on_given_up: Callable[[], None] = lambda: None
        log.info(
            "model %s, lease %d of %s, %d slots, tokenizer %s",
            self.model, self.lease.index, options.ring, self.lease.n_slots, self.tokenizer.engine,
        )  # fmt: skip

    def _serve_model(self, owned: contextlib.ExitStack) -> None:
        options = self.options
        bounds = Bounds(options.template_timeout_s, options.template_memory_bytes, 2 * options.max_body_bytes)
        parsers = options.tool_call_parser, options.reasoning_parser
        self.template: Renderer | None
        forms: AnswerForms
        if options.chat_template is None and speaks_harmony(options.model_dir, self.tokenizer):
            self.template, forms = open_harmony(options.model_dir, bounds, parsers), HarmonyForms()
        else:
            self.template = open_renderer(options.model_dir, bounds, options.chat_template)
            forms = choose(*parsers, self.template.forms if self.template else None)
        if self.template is not None:
            owned.callback(self.template.close)
        self.served = Served(self.model, self.tokenizer, self.limits, forms, self.template, self.grammars)

    def _remember(self, owned: contextlib.ExitStack) -> None:
        """What is stored of responses, and what clients keep of them."""
        options = self.options
        age_s = options.response_age_days * 86400
        key = options.seal_key or secrets.token_bytes(32)
        if options.seal_key_file is not None:
            key = read_seal_key(options.seal_key_file)
        self._seal = Seal(key, model_fingerprint(options.model_dir), age_s)
        self.store: Store | None = None
        self.background: Background | None = None
        if options.store_responses is not None:
            self.store = Store(options.store_responses, StoreBounds(options.store_bytes, age_s))
            owned.callback(self.store.close)
            self.background = Background(self.store)

    def memory(self, owner: bytes, hold: Callable[[int], None]) -> Memory:
        """What `owner` may remember; `hold` counts the memory that it takes (api/memory.py)."""
        options = self.options
        return Memory(
            self.store.of(owner) if self.store else None,
            self._seal, owner, options.max_body_bytes, options.request_timeout_s, hold,
        )  # fmt: skip

    def _share_figures(self, owned: contextlib.ExitStack) -> None:
        """With the other frontends of this host. The last of them removes the segment."""
        segment = HostSegment(segment_path(self.options.ring), FIGURES_BYTES + BUDGET_BYTES)
        self._shared = SharedFigures(segment, self.lease.index)
        owned.callback(lambda: segment.close(remove=self._shared.clear()))
        self.budgets = KeyBudgets(segment, FIGURES_BYTES, self.lease.index)
        self.exposition = Exposition(self.model, self.seen, self.options.metrics_names)
        is_local = isinstance(self.options.ring, Path)
        self.live = Live(self.model, self.transport, self._ring_thread, self.look, is_local)
        self._reporter = Reporter(self._shared, self.lease.index, self._figures, self.look, self.keys)

    def _track(self, owned: contextlib.ExitStack) -> None:
        """What of requests and of the backend is watched."""
        options, limits = self.options, self.limits
        least_prompt = self.transport.capabilities.least_copy // 4
        slots = SlotTracker(self.lease.n_slots, limits.prompt_heap, limits.output_heap, least_prompt)
        if options.scrub:
            slots.on_free = self._scrubbing(self.lease.index)
        self.tracker = RequestTracker(self._reader, slots, self.metrics, options.slot_wait_s)
        self._monitor = BackendMonitor(
            self.transport, self._ring_thread, self._reader, self.tracker, self.lease,
            options.grant_timeout_s, self._give_up,
            emulated=text(self._header["device_name"].tobytes()) == "cpu", processors=limits.processors,
        )  # fmt: skip
        self._watchdog = None if options.watchdog_s is None else Watchdog(options.watchdog_s)
        if self._watchdog is not None:
            owned.callback(self._watchdog.close)

    def _give_up(self, reason: str) -> None:
        """Whoever started this process can start another, which attaches to what is there now."""
        self.given_up = reason
        self.on_given_up()

    async def look(self) -> Seen:
        """`seen`, with the header that the ring has now. All who ask while it is being read share it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._ring_thread.run(self.read_header))
        await asyncio.shield(self._looking)
        return self.seen()

    def read_header(self) -> None:
        """Waits for the ring: not for the event loop's thread."""
        with contextlib.suppress(TransportError):  # while the link is down, the last one seen
            self._header = read_header(self.transport)

    def seen(self) -> Seen:
        """All frontends of this host that serve this ring, and the ring's header as it was last read."""
        return Seen(self._shared.others() | {self.lease.index: self._figures()}, self._header)

    def _figures(self) -> Figures:
        return self.metrics.figures(self.tracker.n_open, self._reader.health())

    async def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._reader.descriptor, self.tracker.on_readable)
        self._warming = asyncio.get_running_loop().call_later(WARM_UP_S, self.grammars.start)
        runs = [self._monitor.run, self._reporter.run, self._watch_tokenizer]
        if self._watchdog is not None:
            runs.append(self._watchdog.run)
        if self.store is not None and self.background is not None:
            runs += [self.store.run, self.background.run]
        self._tasks += [asyncio.create_task(run()) for run in runs]

    async def _watch_tokenizer(self) -> None:
        self._give_up(await self.tokenizer.stuck())

    async def stop(self) -> None:
        """Cancels what is open, waits a bounded time for its slots, and gives the lease back. What is
        computed in the background has the same time to end in as what clients wait for.
        """
        if self.background is not None:
            await self.background.end(self.options.drain_timeout_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._watchdog is not None:
            self._watchdog.close()
        self._warming.cancel()
        self.grammars.fail_all(ending())
        await self.tracker.close(RELEASE_TIMEOUT_S)
        asyncio.get_running_loop().remove_reader(self._reader.descriptor)

    def close(self) -> None:
        self._owned.close()

    def _scrubbing(self, lease: int) -> Callable[[Place], None]:
        scrubber = Scrubber(self.transport, lease)
        scrubber.everything()
        return scrubber.place
