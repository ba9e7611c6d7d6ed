"""Which algorithm multiplies: what is measured, when, and what later starts make of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from gpu_backend.cuda.cublas import ALGORITHM_BYTES, R_16BF, R_16F, Algorithm
from gpu_backend.cuda.gemm import Gemm
from gpu_backend.element import Element
from gpu_backend.engines.native import gemm_choice
from gpu_backend.engines.native.gemm_choice import GemmChoice, matrices_alike, read_choices
from gpu_backend.engines.native.model import DeviceLayer, DeviceWeights
from gpu_backend.ops.attention import Reach
from gpu_backend.ops.matrix import Matrix

FAST = b"f" * ALGORITHM_BYTES


def at(address: int) -> Matrix:
    return Matrix(1024, 1024, Element.BF16, address)


REACH = Reach(0, at(0), window=None)
WEIGHTS = DeviceWeights(
    embed=at(1),
    layers=tuple(
        DeviceLayer(
            REACH, at(0), qkv=at(n + 1), o=at(n + 2), mlp_norm=at(0), gate_up=at(n + 3), down=at(n + 4)
        )
        for n in (10, 20)
    ),
    final_norm=at(0),
    head=at(5),
    reaches=(REACH,),
)


@dataclass
class Gpu:
    name: str = "a GPU"
    n_multiprocessors: int = 132


@dataclass
class Library:
    version: int = 1
    multiprocessors: int = 131
    refused: bool = False
    asked: int = 0

    def accepts(self, gemm: Gemm, half: int, algorithm: Algorithm) -> bool:
        self.asked += 1
        return not self.refused and algorithm == FAST


@dataclass
class Clock:
    """Finds FAST for weights alike, the library's own choice for the head."""

    asked: list[tuple[Gemm, list[int]]] = field(default_factory=list)
    is_closed: bool = False

    def fastest(self, gemm: Gemm, half: int, weights: list[int]) -> Algorithm | None:
        assert not self.is_closed
        self.asked.append((gemm, weights))
        return None if gemm.weight == WEIGHTS.head.address else FAST

    def close(self) -> None:
        self.is_closed = True


def gemm(rows: int, weight: int = 11, n_in: int = 1024, n_out: int = 1024) -> Gemm:
    return Gemm(weight, 2, 3, rows, n_in, n_out)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gemm_choice, "cache_directory", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def start(clock: Clock | None, library: Any = None, gpu: Any = None) -> GemmChoice:
    """`clock` None: nothing should be measured."""
    clocks = [] if clock is None else [clock]

    def make_clock() -> Any:
        return clocks.pop()  # one is enough

    return GemmChoice(gpu or Gpu(), library or Library(), WEIGHTS, make_clock)


def measured(rows: int) -> None:
    """By a start that has ended."""
    choice = start(Clock())
    choice.algorithm(gemm(rows), R_16BF)
    choice.settle()
    choice.close()


def test_sizes_are_measured_once_with_the_matrices_of_all_layers(cache: Path) -> None:
    clock = Clock()
    choice = start(clock)
    assert choice.algorithm(gemm(64), R_16BF) is None
    assert choice.algorithm(gemm(64, weight=21), R_16BF) is None
    assert clock.asked == []
    assert choice.settle()
    assert [(asked.rows, weights) for asked, weights in clock.asked] == [(64, [11, 21])]
    assert choice.algorithm(gemm(64), R_16BF) == choice.algorithm(gemm(64, weight=21), R_16BF) == FAST
    assert not choice.settle()
    assert len(clock.asked) == 1
    choice.algorithm(gemm(65), R_16BF)
    assert choice.settle()
    choice.close()
    assert clock.is_closed
    choice.close()


def test_every_size_output_and_type_is_a_question_of_its_own(cache: Path) -> None:
    clock = Clock()
    choice = start(clock)
    others = [
        gemm(65),
        gemm(64, n_in=1032),
        gemm(64, n_out=1032),
        Gemm(11, 2, 3, 64, 1024, 1024, "add"),
    ]
    for other in (gemm(64), *others):
        choice.algorithm(other, R_16BF)
    choice.algorithm(gemm(64), R_16F)
    choice.settle()
    assert len(clock.asked) == 6


def test_an_answer_that_is_the_librarys_own_changes_nothing(cache: Path) -> None:
    choice = start(Clock())
    choice.algorithm(gemm(64, weight=WEIGHTS.head.address), R_16BF)
    assert not choice.settle()
    assert choice.algorithm(gemm(64, weight=WEIGHTS.head.address), R_16BF) is None


@pytest.mark.parametrize(
    ("sizes", "is_measured"),
    [
        ((1024, 1024, 512), True),  # as many rows, and as small a matrix, as are measured
        ((1025, 1024, 512), False),
        ((64, 512, 1023), False),
        ((1024, 1024, 32 << 10), True),
        ((1024, 1024, 32 << 10 | 8), False),
        ((1024, 32 << 10, 1024), True),
        ((1024, 32 << 10 | 8, 1024), False),
    ],
)
def test_long_small_and_huge_products_are_the_librarys_own_choice(
    sizes: tuple[int, int, int], is_measured: bool, cache: Path
) -> None:
    rows, n_in, n_out = sizes
    choice = start(Clock())
    assert choice.algorithm(gemm(rows, n_in=n_in, n_out=n_out), R_16BF) is None
    assert choice.settle() == is_measured


def test_a_later_start_answers_alike_and_measures_nothing(cache: Path) -> None:
    clock = Clock()
    choice = start(clock)
    choice.algorithm(gemm(64), R_16BF)
    choice.algorithm(gemm(32, weight=WEIGHTS.head.address), R_16BF)
    choice.settle()
    choice.close()
    assert clock.is_closed
    library = Library()
    later = start(None, library)
    assert [later.algorithm(gemm(64), R_16BF) for _ in range(3)] == [FAST] * 3
    assert library.asked == 1
    assert later.algorithm(gemm(32, weight=WEIGHTS.head.address), R_16BF) is None
    assert not later.settle()


def kept(cache: Path) -> dict[str, Algorithm | None]:
    (path,) = cache.iterdir()
    return read_choices(path)


def test_of_two_starts_at_once_the_first_one_to_end_says_what_is_kept(cache: Path) -> None:
    """And the other adds what it alone has met."""
    first, second = start(Clock()), start(Clock())
    for choice, rows in ((first, 64), (second, 64), (second, 48)):
        choice.algorithm(gemm(rows), R_16BF)
    first.settle()
    second.settle()
    first.close()
    (path,) = cache.iterdir()
    path.write_text(path.read_text().replace(FAST.hex(), ""))
    second.close()
    assert sorted(kept(cache).values(), key=bool) == [None, FAST]


@pytest.mark.parametrize(
    "changed",
    [
        {"library": Library(version=2)},
        {"library": Library(multiprocessors=130)},
        {"gpu": Gpu("another")},
        {"gpu": Gpu(n_multiprocessors=114)},
    ],
)
def test_what_another_library_or_gpu_measured_is_measured_again(changed: Any, cache: Path) -> None:
    measured(64)
    clock = Clock()
    later = start(clock, **changed)
    assert later.algorithm(gemm(64), R_16BF) is None
    later.settle()
    assert len(clock.asked) == 1


def test_an_algorithm_that_the_library_refuses_is_measured_again_and_replaced(cache: Path) -> None:
    measured(64)
    (path,) = cache.iterdir()
    path.write_text(path.read_text().replace(FAST.hex(), "ab"))
    second = start(Clock())
    second.algorithm(gemm(64), R_16BF)
    assert second.settle()
    second.close()
    assert list(kept(cache).values()) == [FAST]
    assert start(None).algorithm(gemm(64), R_16BF) == FAST


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 200_000, '{"a": 1}', '{"a": "xyz"}', "\x00"])
def test_a_damaged_file_is_measured_anew(text: str, cache: Path) -> None:
    measured(64)
    (path,) = cache.iterdir()
    path.write_text(text)
    clock = Clock()
    later = start(clock)
    later.algorithm(gemm(64), R_16BF)
    later.settle()
    later.close()
    assert len(clock.asked) == 1
    assert list(read_choices(path).values()) == [FAST]


def test_without_a_place_for_the_file_every_start_measures(cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the directory would be")
    for _ in range(2):
        clock = Clock()
        choice = start(clock)
        choice.algorithm(gemm(64), R_16BF)
        assert choice.settle()
        choice.close()
        assert len(clock.asked) == 1


def test_matrices_are_alike_where_their_sizes_are() -> None:
    """Those of an MLP are not where some layers have experts."""
    dense = DeviceLayer(REACH, at(0), at(11), at(12), at(0), at(13), at(14))
    mixture = DeviceLayer(REACH, at(0), at(21), at(22), at(0), at(23), at(24), router=at(25))
    alike = matrices_alike(DeviceWeights(at(1), (dense, mixture, dense), at(2), at(3), (REACH,)))
    groups = {3: [3], 13: [13, 13], 14: [14, 14], 23: [23], 24: [24], 25: [25]}
    groups |= {11: [11, 21, 11], 21: [11, 21, 11], 12: [12, 22, 12], 22: [12, 22, 12]}
    assert alike == groups
