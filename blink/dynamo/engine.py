"""A backend of NVIDIA Dynamo: an LLMEngine that is a frontend of one ring.

Dynamo's own frontends speak HTTP, tokenize and choose among workers; this process takes token ids from them,
puts them into the ring and passes on the ids that come back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import numpy as np
from dynamo.common.backend.engine import EngineConfig, LLMEngine, LlmRegistration
from dynamo.common.backend.health_check import build_health_check_payload
from dynamo.common.backend.publisher import ComponentSnapshot, PushSource
from dynamo.common.backend.worker import WorkerConfig
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument, Unknown, WorkerUnavailable

from blink.backend_process import BackendProcess
from blink.dynamo import options
from blink.dynamo.call import Call
from blink.dynamo.reports import Reporter
from nic_frontend.errors import ApiError, ClientGone
from nic_frontend.options import FrontendOptions
from nic_frontend.service import Service
from nic_frontend.transport.base import read_header

if TYPE_CHECKING:
    from dynamo._core import Context

RANK = 0  # of data parallelism: a worker is one GPU
PROBE_TOKEN = 0  # the prompt of Dynamo's health check: every vocabulary has it


class BlinkEngine(LLMEngine):  # type: ignore[misc] # Dynamo need not be installed where this is checked
    """`failure` says why the process has to end, where it was not asked to."""

    def __init__(self, frontend: FrontendOptions, backend: BackendProcess | None) -> None:
        """`backend` is started, and ended with this engine; None: attach to the ring of a running one."""
        self.failure: str | None = None
        self._options = frontend
        self._backend = backend
        self._service: Service | None = None
        self._reporter: Reporter | None = None
        self._tells_blocks = False
        self._open: dict[str, Call] = {}  # by Dynamo's id of the request

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[BlinkEngine, WorkerConfig]:
        """The engine and Dynamo's configuration of it, from the words behind `blink dynamo`."""
        parser = argparse.ArgumentParser(prog="blink dynamo", allow_abbrev=False)
        options.configure(parser)
        return cls.chosen(parser.parse_args(argv))

    @classmethod
    def chosen(cls, namespace: argparse.Namespace) -> tuple[BlinkEngine, WorkerConfig]:
        """As `from_args`, from flags that have been read. Raises CommandError."""
        backend = options.chosen_backend(namespace)
        chosen = options.frontend_options(namespace, backend)
        engine = cls(chosen, backend)
        return engine, options.worker_config(namespace, chosen)

    async def start(self, worker_id: int) -> EngineConfig:
        if self._backend is not None:
            self._backend.on_end = self._fail
            await self._backend.start()
        service = self._service = await asyncio.to_thread(Service, self._options)
        service.on_given_up = lambda: self._fail(service.given_up or "the ring is gone")
        await service.start()
        self._reporter = Reporter(service.transport)
        header = read_header(service.transport)
        self._tells_blocks = int(header["kv_event_capacity"]) > 0
        return EngineConfig(
            model=str(self._options.model_dir),
            served_model_name=service.model,
            llm=LlmRegistration(
                context_length=int(header["max_context"]),
                kv_cache_block_size=int(header["page_size"]),
                total_kv_blocks=int(header["total_pages"]),
                max_num_seqs=int(header["max_batch"]),
                max_num_batched_tokens=int(header["max_prefill_tokens"]) or None,
            ),
        )

    def _fail(self, why: str) -> None:
        """Ends this process in order: Dynamo takes it out of its routers' sight first."""
        if self.failure is None:
            self.failure = why
            os.kill(os.getpid(), signal.SIGTERM)

    # ---------------------------------------------------------------- requests

    async def generate(
        self, request: dict[str, Any], context: Context
    ) -> AsyncGenerator[dict[str, Any], None]:
        if (service := self._service) is None:
            raise EngineShutdown("the worker has not started, or is ending")
        call = Call(service, self._options.max_buffered_tokens)
        self._open[context.id()] = call
        try:
            async for chunk in call.chunks(request):
                yield chunk
        except ApiError as error:
            self._end(context, "error")
            raise told(error) from error
        except ClientGone:
            yield {"token_ids": [], "index": 0, "finish_reason": "cancelled"}
        finally:
            self._end(context, "abort")

    async def abort(self, context: Context) -> None:
        """`generate` may never be resumed after this."""
        self._end(context, "abort")

    def _end(self, context: Context, outcome: str) -> None:
        if call := self._open.pop(context.id(), None):
            call.end(outcome)

    # ---------------------------------------------------------------- reports

    async def kv_event_sources(self) -> list[PushSource]:
        if not self._tells_blocks or self._reporter is None:
            return []
        return [PushSource(on_ready=self._reporter.report_blocks, dp_rank=RANK)]

    def component_metrics_dp_ranks(self) -> list[int]:
        return [RANK]

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        if self._reporter is not None:
            self._reporter.report_load(lambda header: publisher.publish(RANK, snapshot(header)))

    async def register_prometheus(self, metrics: Any) -> None:
        """Blink's own metrics are shown with Dynamo's, on the worker's system port."""
        if (service := self._service) is not None:

            def text() -> str:
                service.read_header()
                return service.exposition.render().decode()

            metrics.register_prometheus_expfmt_callback(text)

    async def health_check_payload(self) -> dict[str, Any]:
        return dict(build_health_check_payload(bos_token_id=PROBE_TOKEN))

    # ---------------------------------------------------------------- the end

    async def cleanup(self) -> None:
        """Lets open requests finish, gives the lease back, and ends the backend that was started."""
        if self._reporter is not None:
            await asyncio.to_thread(self._reporter.stop)
            self._reporter = None
        if service := self._service:
            self._service = None
            await self._drain(service)
            await service.stop()
            await asyncio.to_thread(service.close)
        if backend := self._backend:
            self._backend = None
            await backend.stop()

    async def _drain(self, service: Service) -> None:
        deadline = time.monotonic() + self._options.drain_timeout_s
        while self._open and self.failure is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)


def told(error: ApiError) -> Exception:
    """Our error as Dynamo's, which decides by its kind whether another worker may be asked."""
    kinds = {400: InvalidArgument, 429: WorkerUnavailable, 503: EngineShutdown}
    found: Exception = kinds.get(error.status, Unknown)(str(error))
    return found


def snapshot(header: np.void) -> ComponentSnapshot:
    """How full the KV cache is; pages that only the prefix cache keeps count as free."""
    stats, total = header["stats"], int(header["total_pages"])
    used, queries = total - int(stats["free_pages"]), int(stats["prefix_queries"])
    return ComponentSnapshot(
        kv_used_blocks=used,
        kv_total_blocks=total,
        gpu_cache_usage=used / total,
        dp_rank=RANK,
        kv_cache_hit_rate=int(stats["prefix_hits"]) / queries if queries else None,
    )
