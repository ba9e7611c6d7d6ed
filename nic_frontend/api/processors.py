"""The logits processors that a request asks for: `logits_processors` and `logits_processor_args`."""

from __future__ import annotations

from collections.abc import Sequence

from nic_frontend.api.schema.generation import Generation
from nic_frontend.errors import ApiError, bad_request
from ringbuffer.model_file import one_line

NAMES, ARGS = "logits_processors", "logits_processor_args"
FLAG = "--logits-processor"

Asked = list[tuple[int, list[float]]]  # the index of each, and its numbers


def processors_of(request: Generation, there: tuple[str, ...]) -> Asked:
    """In the request's order. `there`: the names that this server has, by their indices.

    Raises ApiError 400 for a name that is not there or stands twice, and for numbers that are for none.
    """
    names = request.logits_processors or []
    for name in names:
        if name not in there:
            raise _refused(f"'{NAMES}' names '{one_line(name, 80)}', {_listed(there)}", NAMES)
        if names.count(name) > 1:
            raise _refused(f"'{NAMES}' names '{name}' twice; a processor is applied once", NAMES)
    args = _args(request, names)
    return [(there.index(name), args.get(name, [])) for name in names]


def _args(request: Generation, names: Sequence[str]) -> dict[str, list[float]]:
    given = request.logits_processor_args
    if not given:
        return {}
    if not names:
        raise _refused(f"'{ARGS}' is given, and '{NAMES}' names no processor for them", ARGS)
    if isinstance(given, list):
        if len(names) > 1:
            example = "{" + ", ".join(f'"{name}": [...]' for name in names) + "}"
            raise _refused(
                f"'{ARGS}' has numbers for one processor, and {len(names)} are named: {example}", ARGS
            )
        return {names[0]: given}
    for name in given:
        if name not in names:
            raise _refused(
                f"'{ARGS}' is for '{one_line(name, 80)}', and '{NAMES}' names {_quoted(names)}", ARGS
            )
    return given


def _listed(there: Sequence[str]) -> str:
    if not there:
        return f"and this server has no logits processors: {FLAG} gives it some"
    return f"and this server has {_quoted(there)}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _refused(message: str, param: str) -> ApiError:
    return bad_request(message, param, "invalid_value")
