"""Small requests that need much time, memory or depth: each is compiled or refused with its place, and costs
nobody else anything.
"""

# ruff: noqa: E501 (sources are long)

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from known_work import least_cpu_s
from limits import WAIT_S
from sources import grammars, schema_source, slow_source, source_of, source_of_choice

from nic_frontend.compiling.answer import expression_of
from nic_frontend.compiling.protocol import MEMORY_BYTES, Answer, Outcome, packed, unpacked
from nic_frontend.compiling.store import Asker, Grammars, Source
from nic_frontend.errors import ApiError
from nic_frontend.grammar import expression as e
from nic_frontend.grammar.bounded_formats import of_bounded_format
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.expression import Expression, Rule
from nic_frontend.grammar.formats import of_format
from nic_frontend.grammar.matching import Patterns
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.schema import of_schema
from nic_frontend.grammar.spelling import SpecialTexts
from nic_frontend.observe.metrics import Metrics

MAX_WORDS = 1 << 20
HUGE = 10**4000
BACKTRACKING = "^(a+)+$"  # a search by backtracking takes 2^n steps for n characters


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a" * 60 + "!"], "pattern": BACKTRACKING},
        {"const": "a" * 60 + "!", "not": {"pattern": BACKTRACKING}},
        {"properties": {"a" * 60 + "!": {}}, "patternProperties": {BACKTRACKING: {}}},
        {"required": ["a" * 60 + "!"], "propertyNames": {"pattern": BACKTRACKING}},
        {"oneOf": [{"const": "a" * 60 + "!"}, {"pattern": BACKTRACKING}, {"type": "null"}]},
        {"const": {"a" * 60 + "!": 1}, "patternProperties": {BACKTRACKING: False}},
    ],
)
def test_a_pattern_takes_linear_time_on_a_text(schema: Any) -> None:
    def make() -> None:
        with contextlib.suppress(GrammarRefused):  # of oneOf's
            of_schema(schema)

    assert least_cpu_s(make, 1.0) < 1.0


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^a+$", "aaa", True),
        ("^a+$", "aab", False),
        ("b", "abc", True),
        ("^(?=.*b)a", "ab", True),
        ("^(?!.*b)a", "ab", False),
        ("^$", "", True),
        (r"^[^x]{2}\.é$", "ab.é", True),
        ("a|^b|c$", "xxc", True),
    ],
)
def test_whether_a_pattern_is_in_a_text(pattern: str, text: str, expected: bool) -> None:
    assert Patterns().found(pattern, text, "#") == expected


@pytest.mark.parametrize(("pattern", "text"), [(r"^\w$", "é"), (r"^\d$", "\u0663"), ("^a$", "a\n")])
def test_what_dialects_disagree_about_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(GrammarRefused, match=r"dialects.*\(at #/x\)"):
        Patterns().found(pattern, text, "#/x")


def chain_of_rules(n: int) -> Expression:
    rules = [Rule(f"r{i}", shared=True) for i in range(n)]
    for rule, following in itertools.pairwise(rules):
        rule.body = e.any_of([e.sequence(e.call(following), e.literal("x")), e.literal("y")])
    rules[-1].body = e.literal("z")
    return e.call(rules[0])


def nested(wrap: Callable[[Expression], Expression], n: int) -> Expression:
    return reduce(lambda inner, _: wrap(inner), range(n), e.one_of("ab"))


@pytest.mark.parametrize(
    "make_root",
    [
        lambda: chain_of_rules(5_000),
        lambda: nested(e.closed, 20_000),
        lambda: nested(lambda inner: e.both(inner, e.one_of("ab")), 20_000),
        lambda: nested(lambda inner: e.both(e.one_of("ab"), inner), 20_000),
        lambda: nested(lambda inner: e.without(inner, e.literal("b")), 20_000),
        lambda: nested(lambda inner: e.optional(e.sequence(inner, e.literal("c"))), 20_000),
        lambda: nested(lambda inner: e.any_of([inner, e.closed(e.literal("c"))]), 20_000),
    ],
    ids=["rules", "closed", "both", "both, behind", "without", "optional", "any of"],
)  # fmt: skip
def test_depth_is_refused_before_the_stack_ends(make_root: Callable[[], Expression]) -> None:
    root = make_root()
    with pytest.raises(GrammarRefused, match="nested too deeply"):
        compiled(root, MAX_WORDS)


def test_all_stages_share_one_time() -> None:
    """Rounds of the determinizer, of which each had a second."""
    root = expression_of(slow_source(0), SpecialTexts([]))

    def refuse() -> None:
        with pytest.raises(GrammarRefused, match="takes more than"):
            compiled(root, MAX_WORDS, time_s=0.3)

    assert least_cpu_s(refuse, 1.0) < 1.0


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (schema_source({"type": "string", "minLength": 2**32}), "(at #/minLength)"),
        (schema_source({"type": "string", "minLength": 1e300}), "(at #/minLength)"),
        (schema_source({"type": "array", "minItems": 2**40}), "(at #/minItems)"),
        (schema_source({"type": "array", "contains": {"type": "integer"}, "minContains": 2**40}), "(at #/minContains)"),
        (schema_source({"type": "array", "contains": {}, "minContains": 60_000_000}), "(at #/minContains)"),
        (schema_source({"type": "array", "contains": {}, "minContains": 1, "maxContains": 2**40}), "(at #/contains)"),
        (schema_source({"type": "object", "minProperties": 2**70}), "(at #/minProperties)"),
        (schema_source({"items": {"multipleOf": HUGE + 1, "allOf": [{"multipleOf": HUGE + 3}]}}), "(at #/items"),
        (schema_source({"items": {"minimum": HUGE}}), "(at #/items"),
        (schema_source({"items": {"multipleOf": 5e-324}}), "(at #/items"),
        (schema_source({"items": {"minimum": 5e-324}}), "(at #/items"),
        (schema_source({"items": {"const": "\ud800"}}), "(at #/items"),
        (schema_source({"items": {"$ref": "#/anyOf/-1"}, "anyOf": [{}]}), "(at #/items/$ref)"),
        (schema_source({"items": {"$ref": "#/anyOf/\u0660"}, "anyOf": [{}]}), "(at #/items/$ref)"),
        (schema_source(reduce(lambda inner, _: {"not": inner}, range(400), {})), "nested too deeply"),
        (schema_source(reduce(lambda inner, _: {"items": inner}, range(400), {})), "nested too deeply"),
        (schema_source({"const": reduce(lambda inner, _: [inner], range(900), 1)}), "nested too deeply"),
        (source_of("grammar", "%import common.INT ->\nstart: INT"), "line 1"),
        (source_of("grammar", "%import common.INT -> A B\nstart: INT"), "line 1"),
        (source_of("grammar", "root ::= " + "[" * 20_000), "line 1"),
        (source_of("grammar", 'root ::= "a"{9999999}'), "line 1"),
        (source_of("regex", "(?:a{65535}){65535}"), "more states"),
        (source_of("regex", r"\W" * 5_000), "more states"),
        (source_of("regex", "^" + "(?!b)" * 5_000 + "a"), "nested too deeply"),
        (source_of("regex", r"\u{ 4_1 }"), "no character's number"),
        (source_of("structural_tag", {"format": reduce(lambda inner, _: {"type": "star", "content": inner}, range(900), {"type": "any_text"})}), ""),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_refused_with_its_place(source: Source, told: str) -> None:
    """None of these is an error of the server's, and none takes long."""

    def refuse() -> None:
        with pytest.raises((GrammarRefused, RecursionError)) as refused:
            compiled(expression_of(source, SpecialTexts([])), MAX_WORDS)
        text = "nested too deeply" if refused.type is RecursionError else str(refused.value)
        assert told in text

    assert least_cpu_s(refuse, 2.5) < 2.5


def test_bounds_that_no_answer_reaches_are_none() -> None:
    for bound in (2**32, 2**53 - 1, 1e300):
        for schema in ({"type": "string", "maxLength": bound}, {"type": "array", "maxItems": bound}):
            free = {"type": schema["type"]}
            assert compiled(of_schema(schema), MAX_WORDS) == compiled(of_schema(free), MAX_WORDS)


def test_a_class_of_unicode_takes_its_memory_once() -> None:
    root = expression_of(source_of("regex", r"[\W\P{L}]\W\P{L}" * 500), SpecialTexts([]))
    assert len({id(inner) for inner in root.inner[0].inner}) <= 3


def test_what_clients_name_is_kept_in_no_cache_for_ever() -> None:
    for i in range(300):
        assert of_format(f"unknown-{i}") is None
        of_bounded_format("uri", 200 + i)
    assert of_bounded_format.cache_info().currsize <= 64


def test_no_cache_without_bound_has_a_key_of_a_client() -> None:
    """Those that there are have as many keys as there are types, classes, formats or versions."""
    root = Path(__file__).parents[3]
    folders = ("nic_frontend", "ringbuffer", "blink")
    allowed = {"python_class", "_known", "components", "known", "document", "integers", "rows", "unsupported"}
    found = set()
    for path in itertools.chain.from_iterable((root / folder).rglob("*.py") for folder in folders):
        lines = path.read_text().splitlines()
        for line, following in itertools.pairwise(lines):
            if line.strip() in ("@cache", "@functools.cache", "@lru_cache", "@lru_cache(maxsize=None)"):
                name, _, arguments = following.strip().removeprefix("def ").partition("(")
                found |= {name} if not arguments.startswith(")") else set()
    assert found == allowed


# ---------------------------------------------------------------- processes


def run(work: Callable[[Grammars], Any], counts: Metrics | None = None) -> None:
    async def body() -> None:
        with grammars(counts=counts) as made:
            await asyncio.wait_for(work(made), WAIT_S)

    asyncio.run(body())


def processes(made: Grammars, at_work: bool = False) -> list[int]:
    """Those that compile its grammars: all, or those that are at one."""
    found = zip(made._compilers._workers, made._compilers._jobs, strict=True)
    workers = [worker for worker, job in found if job is not None or not at_work]
    return [worker._process.pid for worker in workers if worker is not None and worker._process is not None]


def test_a_small_grammar_is_not_behind_large_ones() -> None:
    """Each is of a client of its own."""
    done: list[str] = []

    async def work(made: Grammars) -> None:
        async def ask(source: Source, client: int, name: str) -> None:
            with contextlib.suppress(ApiError):  # they take too long
                await made.block(source, "p", asker=Asker(client=client))
            done.append(name)

        large = [asyncio.create_task(ask(slow_source(i), i, "large")) for i in range(6)]
        await asyncio.sleep(0.05)
        await ask(source_of_choice("x"), 99, "small")
        assert done.count("large") <= 1
        made.fail_all(ApiError(503, "the end"))
        await asyncio.gather(*large)

    run(work)


def test_a_process_that_crashes_is_a_refusal_of_what_it_worked_at() -> None:
    counts = Metrics()

    async def work(made: Grammars) -> None:
        await made.block(source_of_choice("first"), "p")
        hostile = asyncio.create_task(made.block(slow_source(1), "p"))
        while not hostile.done():  # whichever it is at: one that still starts is not to blame
            for pid in processes(made, at_work=True):
                with contextlib.suppress(ProcessLookupError):  # it is gone, and the loop does not know yet
                    os.kill(pid, signal.SIGSEGV)
            await asyncio.sleep(0.05)
        with pytest.raises(ApiError, match="too much memory, or too deep a stack") as refused:
            await hostile
        assert refused.value.status == 400
        assert await made.block(source_of_choice("second"), "p")
        assert counts.grammar_process_restarts >= 1

    run(work, counts)


def test_a_process_that_somebody_else_ends_costs_no_request() -> None:
    async def work(made: Grammars) -> None:
        await made.block(source_of_choice("first"), "p")
        for pid in processes(made):
            os.kill(pid, signal.SIGKILL)
        assert await made.block(source_of_choice("second"), "p")

    run(work)


@pytest.mark.parametrize(
    "hostile",
    [source_of("regex", "(a|b)*a(a|b){22}"), source_of("choice", [f"{i}" for i in range(100_000)])],
    ids=["native", "python"],
)
def test_what_takes_too_much_memory_is_refused(hostile: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nic_frontend.compiling.worker.MEMORY_BYTES", 48 << 20)

    async def work(made: Grammars) -> None:
        await made.block(source_of_choice("x"), "p")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ApiError, match=r"memory|too large") as refused:
            await made.block(hostile, "p")
        assert refused.value.status == 400
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10  # KiB
        assert await made.block(source_of_choice("y"), "p")

    run(work)


def test_the_processes_are_confined() -> None:
    async def work(made: Grammars) -> None:
        os.environ["BLINK_API_KEY"] = "secret"
        try:
            await made.block(source_of_choice("x"), "p")
        finally:
            del os.environ["BLINK_API_KEY"]
        while not all(worker is not None and worker.is_ready for worker in made._compilers._workers):
            await asyncio.sleep(0.01)
        for pid in processes(made):
            assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert resource.prlimit(pid, resource.RLIMIT_DATA) == (MEMORY_BYTES, MEMORY_BYTES)
            assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == (0, 0)
            assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()

    run(work)


def test_a_process_loads_no_more_than_it_needs() -> None:
    loaded = "import sys, nic_frontend.compiling.compile_process; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False, timeout=WAIT_S).returncode == 0


def test_answers_that_are_none() -> None:
    """Of a process that was broken out of."""
    for frame in (
        b"",
        b"\x07" + bytes(9),
        packed(Answer(Outcome.BLOCK, 1e9)),
        packed(Answer(Outcome.BLOCK, float("nan"))),
        packed(Answer(Outcome.REFUSED, 0.0, bytes(10_000))),
    ):
        with pytest.raises(ValueError, match=r"."):
            unpacked(frame)
