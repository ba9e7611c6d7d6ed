"""What each URL does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from nic_frontend import errors, response_endpoints
from nic_frontend.api import contradictions, openapi
from nic_frontend.api.background import Compute
from nic_frontend.api.call import Call
from nic_frontend.api.chat import parse_chat
from nic_frontend.api.completion import parse_completion
from nic_frontend.api.fields import parse_object
from nic_frontend.api.job import Job, Parser
from nic_frontend.api.keep import Kept
from nic_frontend.api.messages import count_tokens, parse_messages
from nic_frontend.api.render import render_chat, render_completion
from nic_frontend.api.responses import parse_response
from nic_frontend.api.sampling_defaults import fill_in
from nic_frontend.api.served import Served
from nic_frontend.api.tokens import detokenize, tokenize
from nic_frontend.compiling.store import Asker
from nic_frontend.errors import ApiError, ClientGone
from nic_frontend.http.asgi import (
    JSON,
    Receive,
    Scope,
    Send,
    disconnected,
    number_in_query,
    read_json_body,
    respond,
    respond_json,
)
from nic_frontend.http.bodies import Body
from nic_frontend.observe.page.document import files
from nic_frontend.observe.request_record import record_of
from nic_frontend.observe.server_info import load, server_info
from nic_frontend.observe.step_trace import StepTrace
from nic_frontend.response_endpoints import Handler, ResponseEndpoints, owner_of
from nic_frontend.ring.request import Request
from nic_frontend.service import Service
from nic_frontend.transport.base import TransportError
from ringbuffer.version import version

Asked = Callable[[dict[str, Any], Served], Awaitable[Any]]

MODELS = "/v1/models/"  # and the model's name
MODEL = MODELS + "{model}"
PROFILE_S = 2.0  # where the query does not say how long
PAGE_FILES = "/page/"  # and a file's name
PAGE_FILE = PAGE_FILES + "{file}"
METRICS_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
HTML_TYPE = (b"content-type", b"text/html; charset=utf-8")
OPEN_PATHS = ("/", PAGE_FILE, "/health", "/metrics", "/ping")  # need no key


def pattern_of(path: str) -> str:
    """The path as `routes` has it: with a name in braces where it may be any."""
    if path.startswith(MODELS):
        return MODEL
    if path.startswith(PAGE_FILES):
        return PAGE_FILE
    return response_endpoints.pattern_of(path) or path


class Endpoints:
    """`routes` are by pattern and method."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(time.time())
        self._root = root_of(service.options.model_dir)
        self._step_trace = StepTrace(service.look)
        self._document = openapi.document(version(), service.options.root_path)
        get = {
            "/health": self._health,
            "/ping": self._health,
            "/metrics": self._metrics,
            "/": self._page,
            PAGE_FILE: self._page,
            "/live": self._live,
            "/load": self._load,
            "/server_info": self._server_info,
            "/profile": self._profile,
            "/version": self._version,
            "/openapi.json": self._openapi,
            "/docs": self._docs,
            "/v1/models": self._models,
            MODEL: self._model,
        }
        post = {
            "/v1/completions": self._generating(parse_completion),
            "/v1/chat/completions": self._generating(parse_chat),
            "/v1/responses": self._generating(parse_response),
            "/v1/messages": self._generating(parse_messages),
            "/v1/messages/count_tokens": self._asking(count_tokens),
            "/v1/completions/render": self._asking(render_completion),
            "/v1/chat/completions/render": self._asking(render_chat),
            "/tokenize": self._asking(tokenize),
            "/detokenize": self._asking(detokenize),
        }
        self.routes: dict[str, dict[str, Handler]] = {path: {"GET": handler} for path, handler in get.items()}
        self.routes |= {path: {"POST": handler} for path, handler in post.items()}
        self.routes |= ResponseEndpoints(service).routes

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._service.tracker.down is not None:
            raise errors.unavailable(self._service.tracker.down)
        await respond_json(send, 200, {"status": "ok"})

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._service.look()
        await respond(send, 200, self._service.exposition.render(), [METRICS_TYPE])

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        file = files().get(scope["path"])
        if file is None:
            raise errors.unknown_url(scope["method"], scope["path"])
        await respond(send, 200, file.content, file.headers)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            state = await self._service.live.state()
        except TransportError as error:
            raise errors.unavailable(str(error)) from error
        await respond_json(send, 200, state, {"cache-control": "no-store"})

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond_json(send, 200, load((await self._service.look()).header["stats"]))

    async def _server_info(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        header = (await service.look()).header
        await respond_json(send, 200, server_info(service.options, service.model_names, header))

    async def _profile(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = number_in_query(scope, "seconds", PROFILE_S)
        trace = asyncio.ensure_future(self._step_trace.take(seconds))
        left = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait((trace, left), return_when=asyncio.FIRST_COMPLETED)
            if not trace.done():
                raise ClientGone
            await respond_json(send, 200, await trace)
        finally:
            trace.cancel()
            left.cancel()

    async def _version(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond_json(send, 200, {"version": version()})

    async def _openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, json.dumps(self._document).encode(), [JSON])

    async def _docs(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, openapi.page(self._document).encode(), [HTML_TYPE])

    async def _models(self, scope: Scope, receive: Receive, send: Send) -> None:
        models = [self._model_object(name) for name in self._service.model_names]
        await respond_json(send, 200, {"object": "list", "data": models})

    async def _model(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].removeprefix(MODELS)
        self._check_model(name)
        await respond_json(send, 200, self._model_object(name))

    def _model_object(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "blink",
            "root": self._root,
            "max_model_len": self._service.limits.max_context,
        }

    def _check_model(self, name: object) -> None:
        """Raises ApiError 404 for another than the one that is served, by whichever of its names."""
        names = self._service.model_names
        if isinstance(name, str) and name not in names:
            served = ", ".join(f"'{one}'" for one in names)
            raise ApiError(
                404, f"the model '{name}' does not exist; this server has {served}",
                param="model", code="model_not_found",
            )  # fmt: skip

    @contextlib.asynccontextmanager
    async def _body(self, scope: Scope, receive: Receive) -> AsyncIterator[tuple[dict[str, Any], Body]]:
        """The request's object, and the memory that it came in, which counts until nobody needs it any more.
        Raises ApiError 429 before it is read where the request's key has used up a limit.
        """
        options = self._service.options
        self._service.budgets.check(record_of(scope).key)
        with self._service.bodies.new() as held:
            content = await read_json_body(
                scope, receive, held, options.max_body_bytes, options.body_timeout_s
            )
            body = parse_object(content)
            await asyncio.sleep(0)  # other calls' turn
            self._check_model(body.get("model") or None)  # without a name it means the one that is served
            yield body, held

    def _asking(self, answer: Asked) -> Handler:
        """An endpoint that answers by itself."""

        async def handler(scope: Scope, receive: Receive, send: Send) -> None:
            async with self._body(scope, receive) as (body, held):
                with self._service.budgets.admitted(record_of(scope).key, [], held.size):
                    answered = await answer(body, self._served_to(scope, receive, held, admitted=True))
            await respond_json(send, 200, answered)

        return handler

    def _served_to(self, scope: Scope, receive: Receive, held: Body, *, admitted: bool = False) -> Served:
        """The model as one request sees it, which its key's limits have `admitted` or not yet."""
        service, key = self._service, record_of(scope).key
        asker = Asker(
            scope["client_number"],
            lambda: disconnected(receive),
            lambda: service.budgets.working(key, admitted=admitted),
        )
        return service.served.to(asker, service.memory(owner_of(scope), held.grow))

    def _generating(self, parse: Parser) -> Handler:
        """An endpoint that the model answers."""

        async def handler(scope: Scope, receive: Receive, send: Send) -> None:
            arrived = time.perf_counter()
            service = self._service
            async with self._body(scope, receive) as (body, held):
                fill_in(body, service.sampling_defaults)
                job = await parse(body, self._served_to(scope, receive, held))
            requests = self._requests(job, arrived, scope["client_number"])
            contradictions.check(requests[0], job.grammars.param, service.served)
            record = record_of(scope)
            record.requests = requests
            call = Call(job, requests, service.tokenizer, service.tracker, service.metrics)

            async def compute(receive: Receive, send: Send) -> None:
                with service.budgets.admitted(record.key, requests):
                    await call.run(receive, send, arrived, service.options.request_timeout_s)

            await self._answer(job, compute, receive, send)

        return handler

    async def _answer(self, job: Job, compute: Compute, receive: Receive, send: Send) -> None:
        """While the client waits, or in the background."""
        if job.kept is None:
            await compute(receive, send)
            return
        with contextlib.ExitStack() as waiting:  # for a slot: its input is stored then
            waiting.enter_context(self._service.bodies.new()).grow(job.kept.input_bytes)
            job.kept.on_begun = waiting.close
            await self._answer_stored(job, job.kept, compute, receive, send)

    async def _answer_stored(
        self, job: Job, kept: Kept, compute: Compute, receive: Receive, send: Send
    ) -> None:
        if kept.in_background:
            assert self._service.background is not None
            await self._service.background.begin(kept, compute)
            await respond_json(send, 200, kept.state(), job.warning_headers())
            return
        try:
            await compute(receive, send)
        finally:
            await kept.forget()

    def _requests(self, job: Job, arrived: float, client: int) -> list[Request]:
        """One request per choice. Raises ApiError 400 when their prompts are too long together."""
        service, n = self._service, job.parameters.n
        asked, most = n * sum(map(len, job.prompts)), service.options.max_prompt_tokens
        if len(job.prompts) * n > 1 and asked > most:
            raise errors.too_many_prompt_tokens(asked, most)
        mailbox = job.mailbox(service.options.max_buffered_tokens, streamed=job.parameters.stream)
        hides_cached = service.options.hide_cached_tokens
        return job.requests(service.limits, mailbox, arrived, client, hides_cached=hides_cached)


def root_of(directory: Path) -> str:
    """Where clients find the model's tokenizer: under the model's name on the hub, which the path of a
    directory in the hub's cache has (models--OWNER--NAME/snapshots/REVISION), or else in the directory.
    """
    kind, *name = directory.parent.parent.name.split("--", 2)
    if directory.parent.name == "snapshots" and kind == "models" and len(name) == 2:
        return "/".join(name)
    return str(directory.resolve())
