"""The megakernel on the emulator, whose blocks take turns and whose bulk copies arrive late and in any
order, against a step made of the ops' CPU references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_step import HALVES
from decoder_model import CELLS, VOCAB, Model
from emulation import Emulate
from halves import assert_close
from megakernel_arguments import Decoder
from reference_ops import StepData

from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm

Cases = dict[str, tuple[list[int], int, tuple[int, ...]]]
CASES: Cases = {
    "one": ([130], 4, (256, 8, 2, 64, 512)),
    "many splits": ([700], 12, (256, 4, 1, 64, 512)),
    "few": ([0, 17, 400], 8, (512, 4, 2, 128, 256)),
    "eight": ([5, 300, 64, 63, 1, 257, 130, 16], 5, (256, 8, 2, 64, 2560)),
    "eight in a turn": ([400, 17, 0, 300, 64, 128, 80, 90], 17, (512, 4, 2, 128, 512)),
    "odd stages": ([31, 200], 12, (768, 2, 2, 128, 2304)),
    "many stages": ([65], 5, (256, 2, 2, 128, 2816)),
    "two": ([65, 1000], 3, (256, 2, 1, 128, 2816)),
    "odd four": ([64, 80, 16, 128], 5, (256, 2, 2, 128, 2816)),
    "parts": ([1000], 16, (256, 4, 1, 128, 2048)),
    "most": ([2400], 40, (768, 4, 1, 128, 768)),
}


FP8_CASES: Cases = {
    "one": ([130], 5, (512, 8, 2, 64, 512)),  # odd numbers of tiles in stages of two
    "eight": ([5, 300, 64, 63, 1, 257, 130, 16], 5, (512, 8, 2, 64, 2560)),
    "odd stages": ([31, 200], 12, (1536, 4, 2, 128, 3584)),
    "half stages": ([31, 20], 8, (512, 8, 2, 64, 2048)),
    "many stages": ([65], 5, (512, 4, 2, 128, 5632)),
}


# With how the weights are stored. A warp's share of k is one chunk, or two; three, which are one stage; or
# seven, of which the second stage has fewer. Blocks with many keys have several stages of them in turn.
CODE_CASES: dict[str, tuple[GroupForm, tuple[list[int], int, tuple[int, ...]]]] = {
    "int4 by 64": (GroupForm(Codes.INT4, 64), ([130], 9, (1024, 16, 4, 64, 2048))),
    "int4 by 128": (GroupForm(Codes.INT4, 128), ([31, 200, 5], 12, (1024, 8, 2, 128, 3072))),
    "int4 by 32": (GroupForm(Codes.INT4, 32), ([5, 300, 64, 63], 9, (1024, 16, 8, 64, 2048))),
    "mxfp4": (GroupForm(Codes.E2M1, 32), ([5, 400, 300, 63, 1, 257, 130, 16], 9, (1024, 8, 4, 128, 3072))),
    "nvfp4": (GroupForm(Codes.E2M1, 16), ([65], 8, (1024, 8, 2, 128, 2048))),
    "uneven int4": (GroupForm(Codes.INT4, 64), ([31, 20], 16, (1024, 8, 2, 128, 7168))),
    "uneven mxfp4": (GroupForm(Codes.E2M1, 32), ([31], 16, (1024, 8, 2, 128, 7168))),
}

# Whether heads are normed, and the cache's scales, or that it is of halves.
CACHES = {
    "halves": (False, HALVES),
    "normed": (True, HALVES),
    "fp8": (False, (0.75, 0.25)),
    "normed fp8": (True, (0.5, 2.0)),
}
EVERY_CACHE = ("one", "eight")  # the other cases have one each in turn


def slow_but(quick: bool) -> list[pytest.MarkDecorator]:
    return [] if quick else [pytest.mark.slow]


def cases_and_caches() -> list[Any]:
    caches = list(CACHES)
    return [
        pytest.param(
            *case,
            *CACHES[cache],
            id=f"{name}-{cache}",
            marks=slow_but(name == "one" and cache == "fp8"),
        )
        for i, (name, case) in enumerate(CASES.items())
        for cache in (caches if name in EVERY_CACHE else [caches[i % len(caches)]])
    ]


@pytest.mark.parametrize(
    ("positions", "blocks", "sizes"),
    [pytest.param(*case, id=name, marks=slow_but(name == "one")) for name, case in FP8_CASES.items()],
)
def test_weights_in_fp8(emulate: Emulate, positions: list[int], blocks: int, sizes: tuple[int, ...]) -> None:
    """With a scale for each row; the head is of halves."""
    check_decoder(emulate, positions, blocks, sizes, False, HALVES, ScaleForm.ROW)


@pytest.mark.slow
def test_weights_and_cache_in_fp8(emulate: Emulate) -> None:
    check_decoder(emulate, *FP8_CASES["one"], False, (0.75, 0.25), ScaleForm.ROW)


@pytest.mark.parametrize(
    ("form", "case"),
    [pytest.param(*case, id=name, marks=slow_but(name == "int4 by 64")) for name, case in CODE_CASES.items()],
)
def test_weights_in_codes(
    emulate: Emulate, form: GroupForm, case: tuple[list[int], int, tuple[int, ...]]
) -> None:
    """Of four bits; the head is of halves."""
    check_decoder(emulate, *case, False, HALVES, form)


@pytest.mark.slow
def test_weights_in_codes_and_cache_in_fp8(emulate: Emulate) -> None:
    form, case = CODE_CASES["nvfp4"]
    check_decoder(emulate, *case, False, (0.75, 0.25), form)


@pytest.mark.parametrize(("positions", "blocks", "sizes", "normed", "scales"), cases_and_caches())
def test_decoder(
    emulate: Emulate,
    positions: list[int],
    blocks: int,
    sizes: tuple[int, ...],
    normed: bool,
    scales: tuple[float, float],
) -> None:
    """Blocks with more and fewer tiles of a matrix, several passes, stages that are not full, splits, and
    batch slots that are not in use. A second run from the same state gives the same bits, since nothing is
    added up in the order of arrival, and every counter is as it was."""
    check_decoder(emulate, positions, blocks, sizes, normed, scales)


def check_decoder(
    emulate: Emulate,
    positions: list[int],
    blocks: int,
    sizes: tuple[int, ...],
    normed: bool,
    scales: tuple[float, float],
    form: Form | None = None,
) -> None:
    page_size = 32 if normed else 16
    rows, context = (11, 1024) if max(positions) < 1024 else (4, 2560)
    arrays = StepData([(row, p, p + 1) for row, p in enumerate(positions)], vocab_size=VOCAB, max_batch=rows,
                  max_context=context, page_size=page_size, total_pages=CELLS // page_size)  # fmt: skip

    model = Model(*sizes, normed=normed, page_size=page_size, scales=scales, form=form)
    used = np.zeros((CELLS // page_size, page_size), bool)
    for row, position in enumerate(positions):
        earlier = np.arange(position)
        used[arrays.block_table[row, earlier // page_size], earlier % page_size] = True
    model.cache[:] = np.where(used[:, None, :, None], model.cache, model.none)  # nobody has written there
    for row, position in enumerate(positions):  # values that are missed if they are: 8 times as large
        late = np.arange(position - position // 6, position)
        model.cache[:, 1, arrays.block_table[row, late // page_size], :, late % page_size] += 3 << (
            7 if scales == HALVES else 3
        )
    expected, caches = model.step(arrays)
    group = min(4, model.heads // model.kv_heads)
    runs = []
    for _ in range(2):
        decoder = Decoder(model, 64, blocks)
        arguments = (arrays.step_set, arrays.tables, decoder.model, decoder.arguments)
        kind = model.matrices[0]["qkv"].form
        emulate("megakernel", *arguments, model.head_dim, group, kind, blocks)
        logits = decoder.buffers["logits"]
        assert_close(logits[: len(positions)], expected, 3e-2)
        assert np.isnan(logits[len(positions) :]).all()
        assert not decoder.buffers["leavers"].any()
        assert not decoder.exchange.any()
        runs.append(logits[: len(positions)].copy())
    np.testing.assert_array_equal(*runs)
    for row, position in enumerate(positions):
        used[arrays.block_table[row, position // page_size], position % page_size] = True
    for index, cache in enumerate(caches):
        for got, reference in zip(model.values(index), cache, strict=True):
            cells, expected_cells = (x.swapaxes(1, 2) for x in (got, reference))
            assert_close(cells[used], expected_cells[used], 3e-2 if scales == HALVES else 1 / 8)
            assert np.isnan(cells[~used]).all()
