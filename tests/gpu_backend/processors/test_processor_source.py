"""Which logits processors --logits-processor names, and what is refused before anything is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from compilation import ROOT
from limits import PROGRAM_S

from gpu_backend.abi import RECENT_TOKENS
from gpu_backend.cuda.chip import HOPPER
from gpu_backend.processors.called import MOST_FUNCTIONS
from gpu_backend.processors.loaded import NO_PROCESSORS, load
from gpu_backend.processors.source import ProcessorError, Source, find, parse_sources
from ringbuffer.abi import MAX_PROCESSORS
from ringbuffer.processors import LONGEST_NAME, packed, unpacked

VOCAB = 1000
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A module of this text, as the flag names it."""

    def write(text: str) -> str:
        path = tmp_path / f"processors_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        return str(path)

    return write


def function(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"import math\n\nimport numpy as np\n\ndef f(token, logit, position, recent, args):\n{body}\n"


def test_the_flag_names_several_each_with_a_name_of_its_own() -> None:
    found = parse_sources("pkg.mod:ban, other=/srv/marks.py:green")
    assert found == (Source("ban", "pkg.mod", "ban"), Source("other", "/srv/marks.py", "green"))
    assert parse_sources(",".join(map(str, found))) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ban", "is no logits processor; write"),
        (":ban", "is no logits processor"),
        ("mod:", "is no logits processor"),
        ("mod:f(x)", "is no logits processor"),
        ("a b=mod:f", "'a b' is no name of a logits processor, which has up to"),
        ("=mod:f", "'' is no name"),
        (f"{'x' * (LONGEST_NAME + 1)}=mod:f", "is no name"),
    ],
)
def test_what_names_no_function_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_sources(text)


def test_names_come_back_from_the_rings_header() -> None:
    """As many and as long as there may be."""
    names = tuple(chr(ord("a") + i) * LONGEST_NAME for i in range(MAX_PROCESSORS))
    assert unpacked(packed(names)) == names
    assert unpacked(packed(())) == ()


def test_nothing_is_imported_where_none_is_named() -> None:
    assert load((), VOCAB, HOPPER) is NO_PROCESSORS


BAD = {
    "write": (["recent[0] = 1", "return logit"], "cannot be compiled.*setitem.*readonly"),
    "type": (["return open('/etc/passwd')"], "cannot be compiled.*open"),
    "index": ([f"return logit + recent[{RECENT_TOKENS}]"], "cannot be used: IndexError.* for token 0"),
    "table": (["return logit + TABLE[token]"], f"cannot be used: IndexError.* for token {VOCAB // 2}"),
    "raise": (["if position > 9:", "    raise ValueError", "return logit"], "raises an exception"),
    "assert": (["assert token >= 0", "return logit"], "raises an exception or asserts"),
    "print": (["print(token)", "return logit"], "it prints"),
    "none": (["if token < 5:", "    return logit"], "it returns nothing for token"),
}


@pytest.mark.parametrize(("lines", "why"), BAD.values(), ids=BAD)
def test_a_function_that_cannot_run_is_refused_with_the_reason(
    write: Write, lines: list[str], why: str
) -> None:
    source = write(f"{function(*lines)}\nTABLE = np.zeros(9, np.float32)\n")
    with pytest.raises(ProcessorError, match=f"(?s)logits processor 'bad' .*{why}"):
        load(parse_sources(f"bad={source}:f"), VOCAB, HOPPER)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(*tokens): return tokens[1]", r"and this one of \(\*tokens\)"),
        ("def f(token, logit): return logit", r"and this one of \(token, logit\)"),
        (
            "async def f(token, logit, position, recent, args): return logit",
            "it is a coroutine or a generator",
        ),
        ("def f(token, logit, position, recent, args): yield logit", "it is a coroutine or a generator"),
    ],
)
def test_what_is_called_otherwise_is_refused(write: Write, text: str, why: str) -> None:
    with pytest.raises(ProcessorError, match=f"logits processor 'f' .*{why}"):
        find(*parse_sources(f"{write(text)}:f"))


MARKED = "from numba import njit\nfrom blink.processors import changes_only_recent\n\n@changes_only_recent\n"


@pytest.mark.parametrize("decorator", ["", "@njit\n"], ids=["plain", "njit"])
def test_a_function_says_that_it_changes_only_recent_tokens(write: Write, decorator: str) -> None:
    body = function("return logit - args[0] if token == recent[-1] else logit")
    marked = write(body.replace("def f", MARKED + decorator + "def f"))
    other = write(function("return logit + args[0]"))
    assert load(parse_sources(f"{other}:f,ban={marked}:f"), VOCAB, HOPPER).only_recent == 0b10


@pytest.mark.parametrize(
    "made", ["logit + args[0]", "logit if token > 0 else np.float32(0)", "np.float32(np.nan)"]
)
def test_one_that_changes_other_tokens_although_it_says_so_is_refused(write: Write, made: str) -> None:
    source = write(function(f"return {made}").replace("def f", MARKED + "def f"))
    why = r"'bad' .*cannot be used: it says that it changes only recent tokens, and returns \S+ for token \d+"
    with pytest.raises(ProcessorError, match=why):
        load(parse_sources(f"bad={source}:f"), VOCAB, HOPPER)


HELPERS = """
import math
import numba
import numpy as np
from numba.extending import register_jitable

@numba.njit
def clip(x):
    {}
    return x

@register_jitable
def twice(x):
    return clip(x) + clip(x)

def maker(helper):
    def f(token, logit, position, recent, args):
        return helper(logit)
    return f

of_closure = maker(clip)

def direct(token, logit, position, recent, args):
    return np.clip(twice(logit), np.float32(0), np.float32(1))

def inner(token, logit, position, recent, args):
    def g(x):
        {}
        return x
    return g(logit)
"""


@pytest.mark.parametrize("name", ["direct", "of_closure", "inner"])
@pytest.mark.parametrize(
    ("line", "why"), [("assert x > -1e9", "raises an exception or asserts"), ("print(x)", "prints")]
)
def test_what_a_function_calls_is_searched_too(write: Write, name: str, line: str, why: str) -> None:
    source = write(HELPERS.format(line, line))
    helper = "g" if name == "inner" else "clip"
    with pytest.raises(ProcessorError, match=rf"logits processor '{name}' .*: '{helper}', .*{why}"):
        find(*parse_sources(f"{source}:{name}"))


def test_a_modules_helpers_are_searched_too(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpers = Path(write(HELPERS.format("print(x)", "pass"))).rename(tmp_path / "their_helpers.py")
    monkeypatch.syspath_prepend(helpers.parent)
    monkeypatch.delitem(sys.modules, helpers.stem, raising=False)
    text = f"import {helpers.stem} as h\n{function('return h.clip(logit)')}"
    with pytest.raises(ProcessorError, match=r"'clip', .* prints"):
        find(*parse_sources(f"{write(text)}:f"))


def test_helpers_that_only_compute_are_taken(write: Write) -> None:
    """NumPy's, whose Python source raises, and one that calls itself."""
    source = write(HELPERS.format("if x > 2: return clip(x - np.float32(1))", "pass"))
    assert find(*parse_sources(f"{source}:direct")).__name__ == "direct"


def test_helpers_without_an_end_are_refused(write: Write) -> None:
    lines = [f"@njit\ndef h{i}(x):\n    return h{i + 1}(x)\n" for i in range(MOST_FUNCTIONS + 1)]
    text = f"from numba import njit\n{''.join(lines)}\n{function('return h0(logit)')}"
    with pytest.raises(ProcessorError, match=f"calls more than {MOST_FUNCTIONS} functions"):
        find(*parse_sources(f"{write(text)}:f"))


UNENDING = """
import sys
from gpu_backend.cuda.chip import HOPPER
from gpu_backend.processors import trial
from gpu_backend.processors.loaded import load
from gpu_backend.processors.source import ProcessorError, parse_sources

trial.TRIAL_S = 0.2
try:
    load(parse_sources(sys.argv[1]), 1000, HOPPER)
except ProcessorError as error:
    print(error)
"""


def test_a_function_that_does_not_end_is_refused(write: Write) -> None:
    """Where the trial meets it; else the step's time limit does. In a process of its own, as the trial
    ends with its process: it would take a core from all tests to come."""
    source = write(function("while logit == logit:", "    logit += np.float32(0)", "return logit"))
    program = [sys.executable, "-c", UNENDING, f"{source}:f"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "has not ended after 0.2 s" in done.stdout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit('usage: x')", "cannot be imported: it ends the program: SystemExit: usage: x"),
        ("raise SystemExit", "cannot be imported: it ends the program: SystemExit"),
        ("f = 3", "has a int of that name, and a function is needed"),
        ("g = 3", "has no such name"),
        (
            "def f(token, logit): return logit",
            r"function of \(token, logit, position, recent, args\), and this",
        ),
        ("def f(token, logit, position, recent, *args): return logit", "is a function of"),
    ],
)
def test_a_module_without_the_function_is_refused(write: Write, text: str, why: str) -> None:
    with pytest.raises(ProcessorError, match=why):
        load(parse_sources(f"{write(text)}:f"), VOCAB, HOPPER)


@pytest.mark.parametrize("module", ["no.such.module", "/no/such/file.py"])
def test_a_module_that_there_is_not(module: str) -> None:
    with pytest.raises(ProcessorError, match=f"{module} cannot be imported: "):
        load(parse_sources(f"{module}:f"), VOCAB, HOPPER)


@pytest.mark.parametrize("package", ["numba", "numba_cuda"])
def test_a_package_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ProcessorError, match=rf"--logits-processor needs {package}: .*\[processors\]"):
        load(parse_sources("mod:f"), VOCAB, HOPPER)


def test_names_are_unique_and_few(write: Write) -> None:
    source = write(function("return logit"))
    with pytest.raises(ProcessorError, match="two 'f': give one another name"):
        load(parse_sources(f"{source}:f,{source}:f"), VOCAB, HOPPER)
    many = ",".join(f"f{i}={source}:f" for i in range(MAX_PROCESSORS + 1))
    with pytest.raises(ProcessorError, match=f"names {MAX_PROCESSORS + 1}; there may be {MAX_PROCESSORS}"):
        load(parse_sources(many), VOCAB, HOPPER)
