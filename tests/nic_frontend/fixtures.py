"""Fixtures that other tests of frontends share: a tiny model, mock backends over real rings, real servers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import Frontend, Speak, StartBackend, StartFrontend
from kept import Kept, end
from limits import START_S
from mock_backend import MockBackend
from scripted_answers import say
from templates import write_model_with
from tiny_model import build_tokenizer, write_model

from nic_frontend import service
from nic_frontend.http import key_budgets
from nic_frontend.text import tokenizer
from nic_frontend.text.tokenizer_trial import try_tokenizer

__all__ = [
    "attached_at_once",
    "budget_clock",
    "compilers_on_demand",
    "failed",
    "kept",
    "kept_frontend",
    "model_dir",
    "speak",
    "speakers",
    "start_backend",
    "start_frontend",
    "tokenizers_tried_once",
]

TRIED: set[tuple[bytes, int]] = set()  # contents of tokenizer.json, and sizes of vocabularies
COMPARED: set[bytes] = set()  # contents of tokenizer.json


def ring_of_its_own() -> Path:
    return Path(f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}")


class Speakers:
    """Frontends of models with templates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[tuple[str, bool, Kept]] = []  # template, whether it is kept

    def speak(self, template: str, text: str, **options: Any) -> Frontend:
        tokens = build_tokenizer().encode(text, add_special_tokens=False).ids
        for of, has_no_options, kept in self._started:
            if of == template and has_no_options and not options and not kept.in_use:
                break
        else:
            kept = self._new(template, options)
            self._started.append((template, not options, kept))
        frontend = kept.use()
        frontend.backend.script = say(tokens)
        return frontend

    def _new(self, template: str, options: dict[str, Any]) -> Kept:
        directory = write_model_with(self._folder / f"model{len(self._started)}", template)

        def start() -> Frontend:
            backend = MockBackend(ring_of_its_own(), directory, max_context=4096).start()
            return Frontend(backend, directory, **options)

        return Kept(start)

    def rest(self, failed: bool) -> None:
        for _, _, kept in self._started:
            if kept.in_use:
                kept.rest(failed)

    def close(self) -> None:
        for _, _, kept in self._started:
            kept.close()


@pytest.fixture(scope="module", autouse=True)  # not "session": tests of other folders may run behind these
def tokenizers_tried_once() -> Iterator[None]:
    """A trial takes a process, a comparison with the reference a tenth of a second, and nearly all frontends
    of these tests have the same tokenizer. Later ones compare it by the hard strings alone."""
    compare = tokenizer._fast_encoder

    def try_once(directory: Path, vocab_size: int) -> None:
        path = directory / "tokenizer.json"
        key = path.read_bytes() if path.exists() else b"", vocab_size
        if key not in TRIED:
            try_tokenizer(directory, vocab_size)
            TRIED.add(key)

    def compare_once(path: Path, reference: tokenizer.Encoder, added: list[str]) -> tokenizer.Encoder:
        key = path.read_bytes()
        with pytest.MonkeyPatch.context() as shorter:
            if key in COMPARED:
                shorter.setattr(tokenizer, "random_strings", lambda count: [])
            encoder = compare(path, reference, added)
        COMPARED.add(key)
        return encoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "try_tokenizer", try_once)
        patch.setattr(tokenizer, "_fast_encoder", compare_once)
        yield


@pytest.fixture(scope="module", autouse=True)
def compilers_on_demand() -> Iterator[None]:
    """Else a frontend that lasts for a second starts two processes, which few of these tests need: they start
    with the first grammar, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "WARM_UP_S", float(START_S))
        yield


@pytest.fixture(scope="module", autouse=True)
def attached_at_once() -> Iterator[None]:
    """A mock backend's heart beats every millisecond."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "ATTACH_POLL_S", 0.005)
        yield


@pytest.fixture
def budget_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which the limits of API keys come back, for a test to move: by itself it stands still,
    however long requests take."""
    now = [1000.0]
    monkeypatch.setattr(key_budgets, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def start_backend(model_dir: Path) -> Iterator[StartBackend]:
    """A function that starts a mock backend, on a ring of its own or at `path`, with the tiny model or
    another one; all stop at the end.
    """
    started: list[MockBackend] = []

    def start(path: Path | None = None, model: Path = model_dir, **options: Any) -> MockBackend:
        started.append(MockBackend(path or ring_of_its_own(), model, **options))
        return started[-1].start()

    yield start
    for backend in started:
        end(backend)


@pytest.fixture
def start_frontend(model_dir: Path) -> Iterator[StartFrontend]:
    started: list[Frontend] = []

    def start(backend: MockBackend, **options: Any) -> Frontend:
        started.append(Frontend(backend, model_dir, **options))
        return started[-1]

    yield start
    for frontend in started:
        frontend.stop()


@pytest.fixture
def failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Whether the test has failed, as far as it has come."""
    before = request.session.testsfailed
    return lambda: request.session.testsfailed > before


@pytest.fixture(scope="module")
def kept(model_dir: Path) -> Iterator[Kept]:
    found = Kept(lambda: Frontend(MockBackend(ring_of_its_own(), model_dir).start(), model_dir))
    yield found
    found.close()


@pytest.fixture
def kept_frontend(kept: Kept, failed: Callable[[], bool]) -> Iterator[Frontend]:
    """One for all tests of the module that use this fixture, who have it and its backend as `frontend` and
    `backend`."""
    yield kept.use()
    kept.rest(failed())


@pytest.fixture(scope="module")
def speakers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speakers]:
    found = Speakers(tmp_path_factory.mktemp("speakers"))
    yield found
    found.close()


@pytest.fixture
def speak(speakers: Speakers, failed: Callable[[], bool]) -> Iterator[Speak]:
    """A function that starts a frontend of a model with a template, and a backend that answers a text. Those
    without options are kept for the module's next test."""
    yield speakers.speak
    speakers.rest(failed())
