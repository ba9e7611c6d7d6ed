"""The ASGI application: routes, authentication, and every error in the form that its client knows."""

from __future__ import annotations

import logging
from typing import Any

from nic_frontend import errors
from nic_frontend.endpoints import OPEN_PATHS, Endpoints, pattern_of
from nic_frontend.errors import ApiError, ClientGone, anthropic_body
from nic_frontend.http.asgi import Receive, Scope, Send, respond, respond_json
from nic_frontend.http.clients import client_of
from nic_frontend.http.cors import Cors
from nic_frontend.http.hosts import Hosts, default_hosts
from nic_frontend.http.wrong_keys import WrongKeys
from nic_frontend.observe.access_log import log_request
from nic_frontend.observe.request_record import RequestRecord, record_of
from nic_frontend.options import FrontendOptions
from nic_frontend.response_endpoints import Handler
from nic_frontend.service import Service

log = logging.getLogger(__name__)


class App:
    """Serves one Service. A raw ASGI callable: nothing stands between it and the server on the token path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cors = Cors(service.options.allowed_origins or ())
        self._log_requests = service.options.log_requests
        self._wrong_keys = WrongKeys()
        self._hosts = Hosts(hosts_of(service.options, service.keys.needed))
        self._routes = Endpoints(service).routes
        self._root_path = service.options.root_path

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
        scope["path"] = path = without_root(scope["path"], self._root_path)
        record = RequestRecord(scope)
        added = [*self._cors.headers(scope), record.header]
        started = False

        async def counted(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                record.status = message["status"]
                metrics.on_response(record.status)
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            self._hosts.check(scope)
            if (allowed := self._cors.preflight(scope)) is not None:  # browsers send no key with it
                await respond(counted, 200, b"", allowed)
            elif not path:  # the page's links are relative to the folder that it is in
                await respond(counted, 307, b"", [(b"location", f"{self._root_path}/".encode())])
            else:
                await self._route(scope)(scope, receive, counted)
        except ClientGone:
            metrics.client_disconnects += 1
        except ApiError as error:
            if error.status == 401 and not await self._wrong_keys.wait(scope):
                error = too_many_wrong_keys()
            await respond_json(counted, error.status, told(error, scope), error.headers)
        except Exception:
            log.exception("%s %s failed, id %s", scope["method"], scope["path"], record.id)
            if started:
                return  # half an answer: the server closes the connection
            failure = ApiError(500, "internal error; the server's log has the details")
            await respond_json(counted, failure.status, told(failure, scope))
        finally:
            self._tell(record)

    def _tell(self, record: RequestRecord) -> None:
        """What was known of the request, when it is over."""
        record.end()
        if self._log_requests:
            log_request(record)
        if self._service.tracer is not None:
            self._service.tracer.record(record)

    def _route(self, scope: Scope) -> Handler:
        """Raises ApiError 401, 404 or 405."""
        path = scope["path"]
        place = pattern_of(path)
        if place not in OPEN_PATHS:
            key = record_of(scope).key = self._service.keys.check(scope)
            own = key is not None and key.name is not None  # one key for everybody tells nobody apart
            scope["client_number"] = client_of(scope, key.digest if key and own else None)
        methods = self._routes.get(place)
        if methods is None:
            raise errors.unknown_url(scope["method"], path)
        handler = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if handler is None:
            allowed = [other for method in methods for other in (method, *(["HEAD"] * (method == "GET")))]
            raise ApiError(
                405,
                f"{path} takes {' and '.join(methods)}, not {scope['method']}",
                code="method_not_allowed",
                headers={"allow": ", ".join(allowed)},
            )
        return handler


def hosts_of(options: FrontendOptions, needs_key: bool) -> tuple[str, ...] | None:
    """The names that the server answers to. No browser can be led to a Unix socket."""
    if options.allowed_hosts or options.uds is not None:
        return options.allowed_hosts
    return default_hosts(options.host, needs_key)


def without_root(path: str, root: str) -> str:
    """The path below `root`, whether or not the proxy has taken that away; empty for `root` itself."""
    below = path.removeprefix(root)
    return below if not below or below.startswith("/") else path


def too_many_wrong_keys() -> ApiError:
    message = "too many requests with an incorrect API key"
    return ApiError(429, message, code="invalid_api_key", headers={"connection": "close"})


def told(error: ApiError, scope: Scope) -> dict[str, object]:
    """The error's body, in the form of the API that was called."""
    return anthropic_body(error) if scope["path"].startswith("/v1/messages") else error.body
