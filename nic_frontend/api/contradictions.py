"""Requests whose fields leave no token that an answer could have.

What the fields alone decide is refused before anything is submitted. Where it depends on what the model says,
an answer comes to a place where no token is left; then the error names the fields that left none.
"""

from __future__ import annotations

import numpy as np

from nic_frontend.api.served import Served
from nic_frontend.errors import ApiError, bad_request
from nic_frontend.ring.reasons import error_of
from nic_frontend.ring.request import Request, Sampling
from nic_frontend.text.tokenizer import Tokenizer
from ringbuffer.abi import Reason, RequestFlags
from ringbuffer.extents import left_by
from ringbuffer.grammar import Walk, unpack
from ringbuffer.token_bytes import SPECIAL

MAX_TRIED = 2_000  # tokens that are walked through a grammar before anything is submitted (F10)
BEGINNING = "the beginning of the answer"


def check(request: Request, param: str, served: Served) -> None:
    """Raises ApiError 400 naming the fields that no answer can satisfy together. `param` is the one that the
    request's grammar comes from.
    """
    if not (masks := _masks(request.sampling)):
        return
    if error := _masked(request.sampling, [], served.limits.eos_ids, BEGINNING):
        raise error
    if request.grammar is None:
        return
    left = np.flatnonzero(left_by(request.sampling.controls, []))
    ends = frozenset((*served.limits.eos_ids, *request.sampling.stop_ids))
    if len(left) <= MAX_TRIED and not _may_begin(left.tolist(), ends, request.grammar, served.tokenizer):
        raise _none_left([*masks, param], BEGINNING)


def ended(request: Request, reason: int, param: str, eos_ids: tuple[int, ...]) -> ApiError:
    """Why the scheduler ended a request without an answer. `param` as in `check`."""
    sampling = request.sampling
    masks = _masks(sampling)
    if reason == Reason.GRAMMAR_DEAD_END and param:
        return _dead_end(param, bool(sampling.stop_ids))
    masks += ["logits_processors"] if sampling.controls.n_processors else []
    if reason != Reason.NUMERICAL_FAULT or not masks or request.answered is None:
        return error_of(reason)
    where = f"token {len(request.answered) + 1} of the answer"
    if error := _masked(sampling, request.answered, eos_ids, where):
        return error
    if request.grammar is None and not sampling.controls.n_processors:
        return error_of(reason)
    masks += [param] if request.grammar is not None else []
    return _none_left(masks, where, "; or the model's logits were no numbers there")


def _masks(sampling: Sampling) -> list[str]:
    """The fields that exclude tokens."""
    controls = sampling.controls
    excludes = {
        "allowed_token_ids": controls.flags & RequestFlags.ALLOWS,
        "bad_words": controls.ban_words,
    }
    return [name for name, any_tokens in excludes.items() if any_tokens]


def _masked(sampling: Sampling, answered: list[int], eos_ids: tuple[int, ...], where: str) -> ApiError | None:
    """The error where no token is left, whatever a grammar says."""
    names = _masks(sampling)
    left = left_by(sampling.controls, answered)
    if not left.any():
        return _none_left(names, where)
    if len(answered) >= sampling.min_tokens:
        return None
    ends = [*sampling.stop_ids, *(() if sampling.ignore_eos else eos_ids)]
    left[ends] = False
    if left.any():
        return None
    names += ["stop_token_ids"] if sampling.stop_ids else []
    return _none_left([*names, "min_tokens"], where, ", because those that are left would end it too early")


def _may_begin(tokens: list[int], ends: frozenset[int], grammar: bytes, tokenizer: Tokenizer) -> bool:
    """Whether one of the tokens may be the first of an answer that the grammar allows."""
    start = Walk(unpack(grammar))
    for token in tokens:
        if token in ends:
            if start.may_end():
                return True
            continue
        text = tokenizer.bytes_of(token)
        if token in tokenizer.special:
            text = SPECIAL + text
        if text and start.copy().step_all(text):
            return True
    return False


def _none_left(names: list[str], where: str, why: str = "") -> ApiError:
    listed = [f"'{name}'" for name in names]
    if len(listed) == 1:
        message = f"{listed[0]} leaves no token for {where}{why}"
    else:
        together = f"{', '.join(listed[:-1])} and {listed[-1]}"
        message = f"{together} contradict each other: they leave no token for {where}{why}"
    return bad_request(message, names[0], "no_token_left")


def _dead_end(param: str, has_stop_ids: bool) -> ApiError:
    ends = ", or only tokens that 'stop_token_ids' makes ends of the answer" if has_stop_ids else ""
    return bad_request(
        f"the answer cannot go on as '{param}' wants: no token of the model's vocabulary fits there{ends}",
        param,
        "grammar_dead_end",
    )
