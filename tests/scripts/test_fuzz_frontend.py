"""What the fuzzers of the frontend and the exchange found before, and a few new cases (scripts/fuzz), to see
that each is drawn, judged and counted. The search for faults is that of the fuzzers themselves, which .ci/run
gives a while of its own with other seeds, and people longer ones."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from fuzz import command, exchange_frames, grammars, http_streams, json_bodies, large_bodies
from fuzz.large_cases import draw_large
from fuzz.large_shapes import LIMITS, LISTS, MAPS, Place, costs_of
from fuzz.stream_cases import Case
from fuzz.wire import Malformed, Response, read_response


@pytest.mark.parametrize("new", [0, pytest.param(300, marks=pytest.mark.slow)])
def test_streams_that_are_nearly_http(new: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not new:  # few, all of which a frontend that has just begun might answer later than in 0.15 s
        monkeypatch.setattr(http_streams, "IDLE_S", 3.0)
    cases = http_streams.drawn(range(new)) if new else http_streams.corpus()
    counts, faults = http_streams.run(cases, new, 600.0)
    assert not faults
    assert counts["streams"] >= max(new, 6)
    assert counts["400"]


@pytest.mark.parametrize("new", [0, pytest.param(300, marks=pytest.mark.slow)])
def test_bodies_that_are_nearly_right(new: int) -> None:
    counts, faults = json_bodies.run(0, new, 600.0, None if new else json_bodies.corpus())
    assert not faults
    assert counts["200"]
    assert counts["400"]


@pytest.mark.slow
@pytest.mark.alone
def test_bodies_that_are_as_large_as_they_may_be() -> None:
    counts, faults = large_bodies.run(0, 15, 600.0)
    assert not faults
    assert counts["200"]
    assert counts["400"]
    assert counts["polite"]
    assert counts["longest turn, us"]
    assert counts["longest hold of the lock, us"]


@pytest.mark.parametrize("name", ["parts", "uses of tools and results", "strict tools", "metadata"])
def test_a_body_is_as_large_as_a_limit_allows(name: str) -> None:
    place: Place = (LISTS | MAPS)[name]
    most = place.most()
    assert {"size", "parts"} <= most.keys()
    for limit in ("size", "parts"):
        at, above = (costs_of(place.body(most[limit] + more))[limit] for more in (0, 1))
        assert at <= LIMITS[limit] < above


@pytest.mark.slow
def test_the_same_seed_draws_the_same_large_body() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    request = {"properties": {"prompt": schema, "stop": {"type": "string"}}, "required": ["prompt"]}
    known = {"/v1/completions": {"$ref": "#/Request"}}, {"Request": request}
    first = [draw_large(seed, *known) for seed in range(8)]
    assert first == [draw_large(seed, *known) for seed in range(8)]
    assert len({case.body for case in first}) > 4
    assert any(len(case.body) > 1 << 20 for case in first)


@pytest.mark.slow
def test_grammars_that_were_found_hostile() -> None:
    counts, faults = grammars.run(0, None, 600.0, grammars.corpus())
    assert not faults
    assert counts["400"] + counts["compiled"] == len(grammars.corpus())


@pytest.mark.slow
def test_grammars_that_are_hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources by the processes of a frontend, and programs by the native compiler under sanitizers."""
    monkeypatch.setattr(grammars, "NATIVE_PART", 0.1)
    counts, faults = grammars.run(0, 30, 60.0, None)
    assert not faults
    assert counts["400"]
    assert counts["compiled"]
    assert counts["programs"]


@pytest.mark.parametrize("new", [150, pytest.param(500, marks=pytest.mark.slow)])
def test_frontends_that_mean_harm_to_the_exchange(new: int) -> None:
    counts, faults = exchange_frames.run(0, new, 600.0)
    assert not faults
    assert all(counts[what] for what in ("grant", "refused", "refused without proof"))


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
    ],
)
def test_what_is_no_response_is_found(sent: bytes) -> None:
    async def read() -> Response | None:
        reader = asyncio.StreamReader()
        reader.feed_data(sent)
        reader.feed_eof()
        return await read_response(reader)

    with pytest.raises(Malformed):
        asyncio.run(read())


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def read() -> Response | None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: 1")
        reader.feed_eof()
        return await read_response(reader)

    assert asyncio.run(read()) == Response(200, {b"connection": b"close"}, b"data: 1")


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 3),
        (["--count", "5"], 5),
        (["--seconds", "3600"], None),
        (["--seconds", "3600", "--count", "5"], 5),
    ],
)
def test_only_time_ends_a_fuzzer_that_was_given_a_time(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], count: int | None
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzzer", *arguments])
    options = command.parsed("A fuzzer.", "cases", 3)
    assert options.count == count
    assert options.seconds == (3600 if "--seconds" in arguments else float("inf"))
    drawn = list(itertools.islice(command.seeds(7, options.count), 1000))
    assert drawn == list(range(7, 7 + (1000 if count is None else count)))


def test_faults_are_found() -> None:
    error = Response(500, {b"content-type": b"application/json"}, b'{"error": {}}')
    good = Response(200, {b"content-type": b"application/json"}, b"{}")
    case = Case([b""], [200])
    assert http_streams.fault_of(case, [good]) is None
    assert http_streams.fault_of(case, []) is not None
    assert http_streams.fault_of(Case([b""], None), [error]) is not None
    assert http_streams.fault_of(Case([b""], None), [Response(400, {}, b"bad")]) is not None
    assert json_bodies.fault_of("/tokenize", good) is None
    refused = good._replace(status=400, body=b'{"error": {"message": "no"}}')
    assert large_bodies.unexpected("/tokenize", refused) is None
    for answer in (refused._replace(status=503), good._replace(status=400, body=b'{"error": {}}'), None):
        assert large_bodies.unexpected("/tokenize", answer) is not None
    for answer in (None, error, good._replace(body=b"{"), good._replace(status=400)):
        assert json_bodies.fault_of("/tokenize", answer) is not None
