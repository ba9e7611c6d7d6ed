"""Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}} (API reference, "Error codes")."""

from __future__ import annotations

RETRY_AFTER_S = 1
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


class ApiError(Exception):
    """What a client is told. `param` names the request's field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        if status in (429, 503):
            self.headers.setdefault("retry-after", str(RETRY_AFTER_S))
        default_kind = "invalid_request_error" if status < 500 else "server_error"
        self.body: dict[str, object] = {
            "error": {"message": message, "type": kind or default_kind, "param": param, "code": code}
        }


class ClientGone(Exception):
    """The client closed the connection, or reads too slowly to be served."""


class PromptTooLong(ApiError):
    """A prompt of `tokens`, of which at most `longest` leave room for an answer in a context of `context`."""

    def __init__(self, tokens: int, longest: int, context: int, param: str) -> None:
        message = (
            f"this model's maximum context length is {context} tokens and '{param}' has {tokens}; "
            f"at most {longest} leave room for an answer"
        )
        super().__init__(400, message, param=param, code=CONTEXT_LENGTH_EXCEEDED)
        self.tokens = tokens
        self.longest = longest


ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def anthropic_body(error: ApiError) -> dict[str, object]:
    """The error in Anthropic's form."""
    default = "invalid_request_error" if error.status < 500 else "api_error"
    kind, message = ANTHROPIC_TYPES.get(error.status, default), str(error)
    if isinstance(error, PromptTooLong):  # its clients look for these words, and then shorten what they send
        message = f"prompt is too long: {error.tokens} tokens > {error.longest} maximum: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unknown_url(method: str, path: str) -> ApiError:
    return ApiError(404, f"unknown URL: {method} {path}", code="unknown_url")


def context_length_exceeded(message: str, param: str) -> ApiError:
    return bad_request(message, param, CONTEXT_LENGTH_EXCEEDED)


def too_many_grammars(param: str) -> ApiError:
    message = "too many grammars wait to be compiled; retry shortly"
    return ApiError(429, message, param=param, kind="rate_limit_error", code="rate_limit_exceeded")


def too_many_prompt_tokens(asked: int, most: int) -> ApiError:
    return bad_request(
        f"the prompts of this request have {asked} tokens in all, counted once for each choice; this server "
        f"takes {most} in one request (--max-prompt-tokens): ask for fewer at once",
        "prompt",
        "invalid_value",
    )


def unavailable(message: str) -> ApiError:
    return ApiError(503, message, kind="service_unavailable", code="service_unavailable")


def ending() -> ApiError:
    return unavailable("the frontend is shutting down")


def took_too_long(timeout_s: float) -> ApiError:
    message = f"the answer was not complete within {timeout_s:g} s, which is what this server allows"
    return ApiError(504, message, code="request_timeout")
