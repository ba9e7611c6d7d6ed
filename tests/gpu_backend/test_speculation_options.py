"""`--speculative-config` and what goes with it: vLLM's forms are read, and what is wrong is told in short."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_work import least_cpu_s

from blink import backend, cli, serve
from blink.flags import add_flags
from blink.model_directory import demo_directory
from gpu_backend.abi import MAX_DRAFTS
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.options import BackendOptions, described_model, wanted_limits
from gpu_backend.schedulers.base import SchedulerKind
from gpu_backend.speculation import (
    CACHED,
    DEEPEST,
    DEPTH,
    FACTOR,
    LONGEST_MATCH,
    NO_SPECULATION,
    SHARE,
    Speculation,
    parse_acceptance,
    parse_share,
    parse_speculation,
    speculation,
    write_speculation,
)

Json = dict[str, Any]
LONGEST_MESSAGE = 300


def told(parse: Callable[[str], object], text: str) -> str:
    """What is said of a text, in short and soon; nothing where it is taken."""
    message = ""

    def once() -> None:
        nonlocal message
        try:
            parse(text)
        except ValueError as error:
            message = str(error)

    assert least_cpu_s(once, 1.0) < 1.0
    assert len(message) < LONGEST_MESSAGE
    return message


def refused(text: str) -> str:
    message = told(parse_speculation, text)
    assert message
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("fields", "longest", "shortest"),
    [
        ({}, 5, 5),
        ({"prompt_lookup_max": 4, "prompt_lookup_min": 2}, 4, 2),
        ({"prompt_lookup_max": 3}, 3, 3),
        ({"prompt_lookup_min": 2}, 2, 2),
        ({"prompt_lookup_max": 16, "prompt_lookup_min": 1}, 16, 1),
        ({"prompt_lookup_max": None, "prompt_lookup_min": None}, 5, 5),
        ({"prompt_lookup_max": 7, "prompt_lookup_min": None}, 7, 7),
    ],
)
def test_lengths_that_are_not_given_are_vllms(fields: Json, longest: int, shortest: int) -> None:
    wanted = {"method": "ngram", "num_speculative_tokens": 6, **fields}
    assert parse_speculation(json.dumps(wanted)) == Speculation(6, longest, shortest)


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"method": "ngram"},
        {"model": "ngram"},
        {"model": "[ngram]"},
        {"method": "ngram", "model": "ngram"},
        {"method": "[ngram]", "model": "[ngram]"},
        {"method": None, "model": "ngram"},
        {"method": "ngram", "model": None},
    ],
)
def test_the_methods_names(names: Json) -> None:
    assert parse_speculation(json.dumps({"num_speculative_tokens": MAX_DRAFTS, **names})) == Speculation(14)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"method": "eagle3", "model": "some/head"}, "'eagle3' is not supported"),
        ({"method": "mtp"}, "'mtp' is not supported"),
        ({"method": "SUFFIX"}, "'SUFFIX' is not supported"),
        ({"method": "draft_model", "model": "small/model"}, "'draft_model' is not supported"),
        ({"model": "small/model"}, "'small/model' is not supported"),
        ({"method": "ngram", "model": "small/model"}, "'small/model' is not supported"),
        ({"method": ["ngram"]}, "['ngram'] is not supported"),
        ({"method": {"ngram": 1}}, "{'ngram': 1} is not supported"),
        ({"method": "NGRAM"}, "'NGRAM' is not supported"),
        ({"draft_tensor_parallel_size": 1}, "'draft_tensor_parallel_size' is not supported"),
        (
            {"suffix_decoding_max_tree_depth": 24},
            "'suffix_decoding_max_tree_depth' is not supported by 'ngram'",
        ),
        ({"method": "suffix", "prompt_lookup_max": 4}, "'prompt_lookup_max' is not supported by 'suffix'"),
        ({"method": "suffix", "suffix_decoding_depth": 4}, "'suffix_decoding_depth' is not supported"),
        ({"method": "suffix", "model": "small/model"}, "'small/model' is not supported"),
        ({"method": "suffix", "model": "ngram"}, "method is 'suffix', but model is 'ngram'"),
        ({"prompt_lookup_maximum": 4}, "'prompt_lookup_maximum' is not supported"),
        ({"\x1b[31m\n": 1}, "'\\x1b[31m\\n' is not supported"),
        ({"\ud800": 1}, "'\\ud800' is not supported"),
    ],
)
def test_what_is_not_supported_is_named(fields: Json, named: str) -> None:
    assert named in refused(json.dumps({"num_speculative_tokens": 4, **fields}))


def by_suffix(**fields: object) -> str:
    return json.dumps({"method": "suffix", **fields})


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, Speculation(12, 23, 1, 1, 0.1)),
        ({"num_speculative_tokens": 5}, Speculation(5, 23, 1, 1, 0.1)),
        (
            {"num_speculative_tokens": None, DEPTH: None, FACTOR: None, SHARE: None},
            Speculation(12, 23, 1, 1, 0.1),
        ),
        ({DEPTH: 32, FACTOR: 2.0, SHARE: 0.05, CACHED: 0}, Speculation(14, 31, 1, 2, 0.05)),
        ({DEPTH: 64, FACTOR: 0.1, SHARE: 1}, Speculation(5, 63, 1, 0.1, 1)),
        ({DEPTH: 11, FACTOR: 0.1, SHARE: 0}, Speculation(1, 10, 1, 0.1, 0)),
        ({DEPTH: 2, CACHED: None}, Speculation(1, 1, 1, 1, 0.1)),
        ({"model": "suffix", FACTOR: 10**400}, None),
        ({"model": "suffix", FACTOR: 1e300}, Speculation(14, 23, 1, 14, 0.1)),
    ],
)
def test_suffix_has_vllms_defaults_and_its_depth_bounds_drafts(
    fields: Json, wanted: Speculation | None
) -> None:
    """A match and its drafts are no more tokens than the depth says, together."""
    if wanted is None:
        assert FACTOR in refused(by_suffix(**fields))
    else:
        assert parse_speculation(by_suffix(**fields)) == wanted


@pytest.mark.parametrize(
    ("name", "bounds", "wrong"),
    [
        (DEPTH, "a whole number from 2 to 64", (0, 1, 65, 24.0, "24", True, [24], 10**30)),
        (FACTOR, "a number, at least 0", (-0.1, "1", True, [1], float("inf"), float("nan"), 10**400)),
        (SHARE, "a number, from 0 to 1", (-0.1, 1.01, "0.1", False, {}, float("inf"), float("nan"))),
        (
            CACHED,
            "0 or left out: drafts are not looked up in other requests' answers",
            (1, 10000, -1, 0.0, "0", False),
        ),
        ("num_speculative_tokens", "a whole number from 1 to 14", (0, 15, 24, "5")),
    ],
)
def test_a_wrong_value_of_suffix_is_named_with_its_bounds(
    name: str, bounds: str, wrong: tuple[object, ...]
) -> None:
    for value in wrong:
        message = refused(by_suffix(**{name: value}))
        assert message.startswith(f"{name} is ")
        assert f"it must be {bounds}" in message


def test_a_factor_and_a_depth_that_allow_no_draft() -> None:
    for fields in ({FACTOR: 0}, {FACTOR: 0.01}, {FACTOR: 0.4, DEPTH: 3}):
        assert "there would never be a draft" in refused(by_suffix(**fields))


WRONG = (0, -1, 17, 10**30, 3.0, 0.5, "4", "", True, False, [4], {"a": 4})


@pytest.mark.parametrize("name", ["num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"])
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_wrong_number_is_named_with_its_bounds(name: str, value: object) -> None:
    most = MAX_DRAFTS if name == "num_speculative_tokens" else LONGEST_MATCH
    message = refused(json.dumps({"num_speculative_tokens": 4, name: value}))
    assert message.startswith(f"{name} is ")
    assert f"a whole number from 1 to {most}" in message


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "1e3"])
def test_what_is_no_whole_number(value: str) -> None:
    assert refused(f'{{"num_speculative_tokens": {value}}}').startswith("num_speculative_tokens is ")


def test_the_number_of_drafts_has_to_be_given() -> None:
    assert refused("{}").startswith("num_speculative_tokens is missing")
    assert refused('{"num_speculative_tokens": null}').startswith("num_speculative_tokens is missing")
    assert "1 to 14" in refused('{"num_speculative_tokens": 15}')


def test_the_shortest_match_is_no_longer_than_the_longest() -> None:
    text = '{"num_speculative_tokens": 4, "prompt_lookup_max": 2, "prompt_lookup_min": 3}'
    assert refused(text) == "prompt_lookup_min is 3, more than prompt_lookup_max, 2"


@pytest.mark.parametrize("text", ["", "ngram", "{", "{'method': 'ngram'}", "\x00", '{"method": "ngram",}'])
def test_what_is_no_json(text: str) -> None:
    assert refused(text).startswith("it is not valid JSON: ")


@pytest.mark.parametrize("text", ["null", "[]", "5", '"ngram"', "true", "NaN", '[{"method": "ngram"}]'])
def test_what_is_no_object(text: str) -> None:
    assert refused(text).startswith("it must be a JSON object")


MEGABYTE = "x" * (1 << 20)


@pytest.mark.parametrize("value", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
@pytest.mark.parametrize("name", ["method", "num_speculative_tokens", "prompt_lookup_min", "other"])
def test_what_nests_too_deeply(name: str, value: str) -> None:
    """Also where it ends in the middle, and where Python reads it, but could not write it."""
    assert refused(value) == refused(value[:100_000]) == "it is not valid JSON: it nests too deeply"
    assert "too deeply" in refused(f'{{"{name}": {value}}}')
    for depth in range(900, 1000, 7):
        refused(f'{{"{name}": {"[" * depth}{"]" * depth}}}')


@pytest.mark.parametrize("name", ["method", "num_speculative_tokens", "prompt_lookup_max", "other"])
def test_what_is_endless(name: str) -> None:
    assert "an integer of 5000 digits" in refused(f'{{"{name}": {"9" * 5000}}}')
    for value in ("9" * 4000, f'"{MEGABYTE}"', f"[{'1,' * 100_000}1]"):
        assert name in refused(f'{{"num_speculative_tokens": 4, "{name}": {value}}}') or name == "method"
    refused(f'{{"{MEGABYTE}": 1}}')
    refused(MEGABYTE)


@given(st.integers(1, MAX_DRAFTS), st.integers(1, LONGEST_MATCH), st.integers(1, LONGEST_MATCH))
def test_what_is_written_is_read_again(drafts: int, a: int, b: int) -> None:
    wanted = Speculation(drafts, max(a, b), min(a, b))
    assert parse_speculation(write_speculation(wanted)) == wanted


@given(st.integers(1, MAX_DRAFTS), st.integers(16, DEEPEST), st.floats(0.1, 1e9), st.floats(0, 1))
def test_what_is_written_of_suffix_is_read_again(
    drafts: int, depth: int, factor: float, share: float
) -> None:
    text = by_suffix(**{"num_speculative_tokens": drafts, DEPTH: depth, FACTOR: factor, SHARE: share})
    wanted = parse_speculation(text)
    assert parse_speculation(write_speculation(wanted)) == wanted
    assert 1 <= wanted.max_drafts <= drafts


@given(st.text())
def test_any_text_is_told_in_short(text: str) -> None:
    told(parse_speculation, text)
    told(parse_acceptance, text)


TOO_MANY = ",".join(["0.5"] * (MAX_DRAFTS + 1))


@pytest.mark.parametrize(
    "text", ["", "a", "0.5;0.4", ",", "0.5,", "nan", "-0.1", "1.1", "inf", TOO_MANY, MEGABYTE, "9" * 5000]
)
def test_chances_that_cannot_be(text: str) -> None:
    assert told(parse_acceptance, text)
    assert told(parse_share, text)


def test_chances() -> None:
    assert parse_acceptance("0.8,0.7,0") == (0.8, 0.7, 0)
    assert parse_acceptance("1") == (1,)
    assert parse_share("0.9") == 0.9
    for text in ("0", "0.5,0.5"):
        assert "is not a share" in told(parse_share, text)


def test_flags_go_together() -> None:
    config = Speculation(3, 4, 2)
    assert speculation(None, None, None) == NO_SPECULATION
    assert speculation(config, None, None) == config
    assert speculation(None, (0.5, 0.4), None) == Speculation(2, acceptance=(0.5, 0.4))
    assert speculation(config, (1, 1, 0), None).acceptance == (1, 1, 0)
    assert speculation(config, None, 0.9) == Speculation(3, 4, 2, copied_share=0.9)
    for wrong in ((config, (0.5,), None), (None, None, 0.9), (config, (1, 1, 1), 0.9)):
        with pytest.raises(ValueError, match="simulate"):
            speculation(*wrong)


def limits_of(**options: Any) -> Any:
    wanted = BackendOptions(demo_directory(), random_weights=True, **options)
    return wanted_limits(wanted, described_model(wanted), GpuServingDevice.defaults)


@pytest.mark.parametrize("options", [{"speculative_config": Speculation(3)}, {"simulate_acceptance": (0.5,)}])
@pytest.mark.parametrize("scheduler", [kind for kind in SchedulerKind if kind.host_driven])
def test_a_scheduler_that_a_host_drives_has_no_drafts(options: Json, scheduler: SchedulerKind) -> None:
    with pytest.raises(ValueError, match=f"{scheduler} has no drafts"):
        limits_of(scheduler=scheduler, **options)
    assert limits_of(scheduler=scheduler).max_drafts == 0


def test_limits_have_what_is_asked_for() -> None:
    config = Speculation(3, 4, 2, 1.5, 0.25)
    limits = limits_of(speculative_config=config, simulate_edits=0.9)
    wanted = asdict(replace(config, copied_share=0.9))
    assert {name: getattr(limits, name) for name in wanted} == wanted
    assert limits.max_verify_rows >= limits.max_batch
    plain = limits_of()
    assert (plain.max_drafts, plain.max_verify_rows) == (0, 0)


@pytest.mark.parametrize("flag", ["--speculative-config", "-sc"])
def test_serve_passes_the_flags_on(flag: str) -> None:
    words = ["serve", "m", flag, '{"num_speculative_tokens": 5, "prompt_lookup_min": 2}']
    words += ["--simulate-acceptance=0.8,0.7", "--simulate-edits", "0.9"]
    passed = serve.supervisor_options(cli.build_parser("serve").parse_args(words), "m", 1234).backend
    parser = argparse.ArgumentParser()
    add_flags(parser, "backend", BackendOptions, backend.FLAGS)
    values = vars(parser.parse_args([word for word in passed if word.startswith(("--spec", "--sim"))]))
    assert values == {
        "speculative_config": Speculation(5, 2, 2),
        "simulate_acceptance": (0.8, 0.7),
        "simulate_edits": 0.9,
    }


@pytest.mark.parametrize("command", ["serve", "backend"])
def test_a_wrong_flag_is_told_in_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "demo", '--speculative-config={"method": "eagle3"}'])
    printed = capsys.readouterr().err
    assert "argument --speculative-config" in printed
    assert "'eagle3' is not supported" in printed
    assert len(printed.splitlines()) == 1
