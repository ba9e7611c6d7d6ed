"""How a server speculates: `--speculative-config`, in vLLM's form, and `--simulate-acceptance`.

Drafts are looked up in the sequence's own tokens, in one of two ways that vLLM calls `ngram` and `suffix`
(kernels/scheduler/lookup.h).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace

from gpu_backend.abi import MAX_DRAFTS
from ringbuffer.model_file import parse_json, shown

LONGEST_MATCH = 16  # tokens: a look-up compares so many
USUAL_MATCH = 5  # vLLM's default of both lengths
LENGTHS = ("prompt_lookup_max", "prompt_lookup_min")  # one that is not given is as the other
DEEPEST = 64  # tokens of a match and what follows it, of `suffix`
# vLLM's names and defaults of `suffix`
DEPTH, USUAL_DEPTH = "suffix_decoding_max_tree_depth", 24
FACTOR, USUAL_FACTOR = "suffix_decoding_max_spec_factor", 1.0
SHARE, USUAL_SHARE = "suffix_decoding_min_token_prob", 0.1
CACHED = "suffix_decoding_max_cached_requests"
COMMON = ("method", "model", "num_speculative_tokens")
FIELDS = {"ngram": (*COMMON, *LENGTHS), "suffix": (*COMMON, DEPTH, CACHED, FACTOR, SHARE)}  # by method
NAMES = {"ngram": "ngram", "[ngram]": "ngram", "suffix": "suffix"}


@dataclass(frozen=True)
class Speculation:
    """At most `max_drafts` of a sequence in one step, 0 for none.

    They are what followed an earlier place where the sequence's last tokens stood, `shortest_match` to
    `longest_match` of them. If `drafts_per_matched_token` is not 0, the method is `suffix`: of several places
    those that match longest vote, each token that matches brings at most so many drafts, and at least
    `least_share` of the places agree with each draft.

    `acceptance`: the chance of each draft to be accepted if those before it are, to measure with weights that
    mean nothing; empty: drafts are compared. `copied_share`: the share of an answer's tokens that are made to
    repeat the prompt, likewise; 0: none.
    """

    max_drafts: int = 0
    longest_match: int = USUAL_MATCH
    shortest_match: int = USUAL_MATCH
    drafts_per_matched_token: float = 0.0
    least_share: float = 0.0
    acceptance: tuple[float, ...] = ()
    copied_share: float = 0.0


NO_SPECULATION = Speculation()


def parse_speculation(text: str) -> Speculation:
    """What a JSON object says. Raises ValueError, by name, for what is wrong or not supported."""
    try:
        wanted = parse_json(text)
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from None
    if not isinstance(wanted, dict):
        raise ValueError('it must be a JSON object, like {"method": "ngram", "num_speculative_tokens": 5}')
    method = _method(wanted)
    if unknown := [name for name in wanted if name not in FIELDS[method]]:
        fields = ", ".join(FIELDS[method])
        raise ValueError(f"{shown(unknown[0])} is not supported by '{method}': there are {fields}")
    wanted = {name: value for name, value in wanted.items() if value is not None}  # as vLLM's defaults are
    return _suffix(wanted) if method == "suffix" else _ngram(wanted)


def _method(wanted: dict[str, object]) -> str:
    """The method that is named, as vLLM allows: by `method` or by `model`, or not at all."""
    given = [wanted[name] for name in ("method", "model") if wanted.get(name) is not None] or ["ngram"]
    known = [NAMES.get(name) if isinstance(name, str) else None for name in given]
    if None in known:
        wrong = shown(given[known.index(None)])
        raise ValueError(f"{wrong} is not supported: drafts are looked up, the method 'ngram' or 'suffix'")
    if known[0] != known[-1]:
        raise ValueError(f"method is {shown(given[0])}, but model is {shown(given[-1])}")
    return str(known[0])


def _ngram(wanted: dict[str, object]) -> Speculation:
    lengths = [_count(wanted, name, LONGEST_MATCH) for name in LENGTHS if name in wanted] or [USUAL_MATCH]
    longest, shortest = lengths[0], lengths[-1]
    if shortest > longest:
        raise ValueError(f"prompt_lookup_min is {shortest}, more than prompt_lookup_max, {longest}")
    return Speculation(_count(wanted, "num_speculative_tokens", MAX_DRAFTS), longest, shortest)


def _suffix(wanted: dict[str, object]) -> Speculation:
    depth = _count({DEPTH: USUAL_DEPTH, **wanted}, DEPTH, DEEPEST, least=2)
    factor = min(_number(wanted, FACTOR, USUAL_FACTOR), MAX_DRAFTS)
    share = _number(wanted, SHARE, USUAL_SHARE, 1)
    cached = wanted.get(CACHED, 0)
    if cached or not isinstance(cached, int) or isinstance(cached, bool):
        raise ValueError(
            f"{CACHED} is {shown(cached)}, it must be 0 or left out: drafts are not looked up in other "
            "requests' answers"
        )
    drafts = _count(
        {"num_speculative_tokens": min(depth, MAX_DRAFTS), **wanted}, "num_speculative_tokens", MAX_DRAFTS
    )
    # The depth bounds a match and its drafts together. What is added outweighs what a factor like 0.1 lacks.
    deepest = max(min(depth - match, int(match * factor + 1e-6)) for match in range(1, depth))
    if deepest < 1:
        raise ValueError(f"with {FACTOR} {factor:g} and {DEPTH} {depth} there would never be a draft")
    return Speculation(min(drafts, deepest), depth - 1, 1, factor, share)


def write_speculation(wanted: Speculation) -> str:
    """JSON that is parsed to the same."""
    fields: dict[str, object] = {"method": "ngram", "num_speculative_tokens": wanted.max_drafts}
    if wanted.drafts_per_matched_token:
        fields |= {"method": "suffix", DEPTH: wanted.longest_match + 1}
        fields |= {FACTOR: wanted.drafts_per_matched_token, SHARE: wanted.least_share}
    else:
        fields |= {"prompt_lookup_max": wanted.longest_match, "prompt_lookup_min": wanted.shortest_match}
    return json.dumps(fields)


def parse_acceptance(text: str) -> tuple[float, ...]:
    """Chances that are separated by commas. Raises ValueError."""
    try:
        chances = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"'{text:.80}' is not a list of numbers, like 0.8,0.7,0.6") from None
    if not all(0 <= chance <= 1 for chance in chances):
        raise ValueError(f"'{text:.80}' has a number that is no chance; they are 0 to 1")
    if len(chances) > MAX_DRAFTS:
        raise ValueError(f"{len(chances)} chances are given; at most {MAX_DRAFTS} drafts are checked at once")
    return chances


def parse_share(text: str) -> float:
    """A share. Raises ValueError."""
    (share,) = parse_acceptance(text) if "," not in text else (None,)
    if not share:
        raise ValueError(f"'{text:.80}' is not a share, which is a number above 0 and at most 1")
    return share


def speculation(
    config: Speculation | None, acceptance: tuple[float, ...] | None, copied_share: float | None
) -> Speculation:
    """The flags together. Chances alone say how many drafts there are. Raises ValueError."""
    if copied_share:
        if not config or acceptance:
            raise ValueError("simulate-edits needs speculative-config, and excludes simulate-acceptance")
        return replace(config, copied_share=copied_share)
    if not acceptance:
        return config or NO_SPECULATION
    drafts = config.max_drafts if config else len(acceptance)
    if drafts != len(acceptance):
        raise ValueError(
            f"simulate-acceptance has {len(acceptance)} chances, speculative-config asks for {drafts} drafts"
        )
    return Speculation(drafts, acceptance=acceptance)


def _count(wanted: dict[str, object], name: str, most: int, least: int = 1) -> int:
    value = wanted.get(name)
    if value is None:
        raise ValueError(f"{name} is missing: how many tokens are guessed at a time, {least} to {most}")
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} is {shown(value)}, it must be a whole number from {least} to {most}")
    return value


def _number(wanted: dict[str, object], name: str, usual: float, most: float = sys.float_info.max) -> float:
    value = wanted.get(name, usual)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        bounds = f"from 0 to {most}" if most == 1 else "at least 0"
        raise ValueError(f"{name} is {shown(value)}, it must be a number, {bounds}")
    return float(value)
