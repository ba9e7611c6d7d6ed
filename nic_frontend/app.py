"""The ASGI application: routes, authentication, and every error as OpenAI writes it."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from nic_frontend import errors
from nic_frontend.api.call import Call
from nic_frontend.api.chat import parse_chat
from nic_frontend.api.completion import parse_completion
from nic_frontend.api.fields import parse_object
from nic_frontend.api.job import Job, Parser
from nic_frontend.asgi import Receive, Scope, Send, header, read_json_body, respond, respond_json
from nic_frontend.cors import Cors
from nic_frontend.errors import ApiError
from nic_frontend.request import ClientGone, Mailbox, Request
from nic_frontend.sampling_defaults import fill_in
from nic_frontend.service import Service

log = logging.getLogger(__name__)

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
METRICS_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class App:
    """Serves one Service. A raw ASGI callable: nothing stands between it and the server on the token path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(time.time())
        self._cors = Cors(service.options.allowed_origins or ())
        key = service.options.api_key
        self._key = hashlib.sha256(key.encode()).digest() if key else None
        self._routes: dict[str, tuple[str, Handler]] = {
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
            "/v1/models": ("GET", self._models),
            "/v1/models/": ("GET", self._model),
            "/v1/completions": ("POST", self._completions),
            "/v1/chat/completions": ("POST", self._chat),
        }
        self._open_paths = ("/health", "/metrics")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._service.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._service.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._service.metrics
        for_pages = self._cors.headers(scope)
        started = False

        async def counted(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                metrics.on_response(message["status"])
                message = {**message, "headers": [*message["headers"], *for_pages]}
            await send(message)

        try:
            if (allowed := self._cors.preflight(scope)) is not None:  # browsers send no key with it
                await respond(counted, 200, b"", allowed)
            else:
                await self._route(scope)(scope, receive, counted)
        except ClientGone:
            metrics.disconnects += 1
        except ApiError as error:
            await respond_json(counted, error.status, error.body, error.headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                return  # half an answer: the server closes the connection
            failure = ApiError(500, "internal error; the server's log has the details")
            await respond_json(counted, failure.status, failure.body)

    def _route(self, scope: Scope) -> Handler:
        """Raises ApiError 401, 404 or 405."""
        path = scope["path"]
        if path not in self._open_paths:
            self._authenticate(scope)
        pattern = "/v1/models/" if path.startswith("/v1/models/") else path
        if pattern not in self._routes:
            raise ApiError(404, f"unknown URL: {scope['method']} {path}", code="unknown_url")
        method, handler = self._routes[pattern]
        if scope["method"] != method:
            raise ApiError(
                405,
                f"{path} takes {method}, not {scope['method']}",
                code="method_not_allowed",
                headers={"allow": method},
            )
        return handler

    def _authenticate(self, scope: Scope) -> None:
        if self._key is None:
            return
        scheme, _, given = (header(scope, b"authorization") or "").partition(" ")
        digest = hashlib.sha256(given.strip().encode()).digest()
        if scheme.lower() != "bearer" or not secrets.compare_digest(digest, self._key):
            raise ApiError(
                401,
                "incorrect API key; send `Authorization: Bearer KEY`",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._service.tracker.down is not None:
            raise errors.unavailable(self._service.tracker.down)
        await respond_json(send, 200, {"status": "ok"})

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, self._service.exposition.render(), [METRICS_TYPE])

    async def _models(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond_json(send, 200, {"object": "list", "data": [self._model_object()]})

    async def _model(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check_model(scope["path"].removeprefix("/v1/models/"))
        await respond_json(send, 200, self._model_object())

    def _model_object(self) -> dict[str, Any]:
        return {
            "id": self._service.model,
            "object": "model",
            "created": self._created,
            "owned_by": "blink",
            "max_model_len": self._service.limits.max_context,
        }

    def _check_model(self, name: object) -> None:
        """A request without a model means the one that is served."""
        if isinstance(name, str) and name != self._service.model:
            raise ApiError(
                404, f"the model '{name}' does not exist; this server has '{self._service.model}'",
                param="model", code="model_not_found",
            )  # fmt: skip

    async def _completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._call(parse_completion, scope, receive, send)

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._call(parse_chat, scope, receive, send)

    async def _call(self, parse: Parser, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = time.perf_counter()
        service, options = self._service, self._service.options
        body = parse_object(
            await read_json_body(scope, receive, options.max_body_bytes, options.body_timeout_s)
        )
        self._check_model(body.get("model"))
        fill_in(body, service.sampling_defaults)
        job = await parse(body, service.served)
        requests = self._requests(job, arrived)
        call = Call(job, requests, service.tokenizer, service.tracker, service.metrics)
        await call.run(receive, send)

    def _requests(self, job: Job, arrived: float) -> list[Request]:
        """One request per choice."""
        service, n = self._service, job.parameters.n
        mailbox = Mailbox(service.options.max_buffered_tokens)

        def request(index: int) -> Request:
            prompt: np.ndarray[Any, np.dtype[np.uint32]] = job.prompts[index // n]
            sampling = job.parameters.sampling(len(prompt), index % n, service.limits, job.param)
            return Request(index, prompt, sampling, mailbox, arrived)

        return [request(index) for index in range(len(job.prompts) * n)]
