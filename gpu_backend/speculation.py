"""How a server speculates: `--speculative-config`, in vLLM's form, and `--simulate-acceptance`.

Drafts are looked up in the sequence's own tokens (kernels/scheduler/lookup.h), which vLLM calls `ngram`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from gpu_backend.abi import MAX_DRAFTS
from ringbuffer.model_file import parse_json, shown

LONGEST_MATCH = 16  # tokens: a look-up compares so many
USUAL_MATCH = 5  # vLLM's default of both lengths
LENGTHS = ("prompt_lookup_max", "prompt_lookup_min")  # one that is not given is as the other
FIELDS = ("method", "model", "num_speculative_tokens", *LENGTHS)


@dataclass(frozen=True)
class Speculation:
    """At most `max_drafts` of a sequence in one step, 0 for none.

    They are what followed an earlier place where the sequence's last tokens stood, `shortest_match` to
    `longest_match` of them. `acceptance`: the chance of each draft to be accepted if those before it are, to
    measure with weights that mean nothing; empty: drafts are compared. `copied_share`: the share of an
    answer's tokens that are made to repeat the prompt, likewise; 0: none.
    """

    max_drafts: int = 0
    longest_match: int = USUAL_MATCH
    shortest_match: int = USUAL_MATCH
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
    if unknown := [name for name in wanted if name not in FIELDS]:
        raise ValueError(f"{shown(unknown[0])} is not supported; there are {', '.join(FIELDS)}")
    wanted = {name: value for name, value in wanted.items() if value is not None}  # as vLLM's defaults are
    method = wanted.get("method", wanted.get("model", "ngram"))
    if method not in ("ngram", "[ngram]") or wanted.get("model", "ngram") not in ("ngram", "[ngram]"):
        other = wanted.get("model", method) if method in ("ngram", "[ngram]") else method
        raise ValueError(f"{shown(other)} is not supported: drafts are looked up, the method 'ngram'")
    lengths = [_count(wanted, name, LONGEST_MATCH) for name in LENGTHS if name in wanted] or [USUAL_MATCH]
    longest, shortest = lengths[0], lengths[-1]
    if shortest > longest:
        raise ValueError(f"prompt_lookup_min is {shortest}, more than prompt_lookup_max, {longest}")
    return Speculation(_count(wanted, "num_speculative_tokens", MAX_DRAFTS), longest, shortest)


def write_speculation(wanted: Speculation) -> str:
    """JSON that is parsed to the same."""
    return json.dumps(
        {
            "method": "ngram",
            "num_speculative_tokens": wanted.max_drafts,
            "prompt_lookup_max": wanted.longest_match,
            "prompt_lookup_min": wanted.shortest_match,
        }
    )


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


def _count(wanted: dict[str, object], name: str, most: int) -> int:
    value = wanted.get(name)
    if value is None:
        raise ValueError(f"{name} is missing: how many tokens are guessed at a time, 1 to {most}")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name} is {shown(value)}, it must be a whole number from 1 to {most}")
    return value
