"""What a request's controls leave of the vocabulary, from the words that the sampler reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringbuffer.extents import NO_CONTROLS, controls, left_by

VOCAB = 40  # more than the bits of a word, and no multiple of them

TOKENS = st.integers(0, VOCAB - 1)
FEW = st.integers(0, 3)


@given(
    allowed=st.none() | st.lists(TOKENS, min_size=1, max_size=8),
    biases=st.dictionaries(TOKENS, st.floats(-100, 100), max_size=3),
    bans=st.lists(st.lists(FEW, min_size=1, max_size=3), max_size=6),
    answered=st.lists(FEW, max_size=5),
)
def test_a_token_is_left_if_it_is_allowed_and_completes_no_ban(
    allowed: list[int] | None, biases: dict[int, float], bans: list[list[int]], answered: list[int]
) -> None:
    left = left_by(controls(VOCAB, allowed, biases, bans), answered)
    for token in range(VOCAB):
        completed = any([*answered, token][-len(ban) :] == ban for ban in bans)
        assert left[token] == ((allowed is None or token in allowed) and not completed)


def test_a_request_without_controls_excludes_nothing() -> None:
    assert left_by(NO_CONTROLS, [1, 2]).all()
