"""blink bench serve: load for a server with OpenAI's API, and what came of it."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import sys
import time
import urllib.parse
from typing import Any

from blink.bench import environment, report
from blink.bench.agents import Agents, least_context
from blink.bench.antagonists import Antagonists
from blink.bench.conversations import Conversations
from blink.bench.cpu_time import seconds as cpu_seconds
from blink.bench.energy import EnergyMeter
from blink.bench.fleet import Fleet, Run, late_p99_ms
from blink.bench.histories import KINDS
from blink.bench.levels import judged
from blink.bench.loads import Load, loads, warm_up
from blink.bench.metrics import SERVICEABLE_RULE, measure, send_late_p99_ms, serviceable, tokens_between
from blink.bench.options import (
    AGENTS,
    API_KEY_VARIABLE,
    CONVERSATIONS,
    FLAGS,
    HISTORIES,
    LOAD,
    MEASUREMENT,
    OF_AGENTS,
    ServeOptions,
)
from blink.bench.presets import chosen_with, described, listing
from blink.bench.prompts import MAX_PROMPT, WORDS_RANGE, Prompts
from blink.bench.records import Target
from blink.bench.sessions import measure_sessions
from blink.bench.turns import measure_turns
from blink.errors import CommandError
from blink.flags import Flag, add_flags, given

DESCRIPTION = """Sends streamed completions of given lengths to a server and measures latency, throughput and
what was lost. Works with any server of OpenAI's /v1/completions that takes token ids and ignore_eos, and
with conversations of text on any server of OpenAI's API."""
EPILOG = """examples:
  blink bench serve http://127.0.0.1:8000 --rate 1,2,4,8 --json open.json
  blink bench serve http://127.0.0.1:8000 --conversations 1,16,64 --input 256 --output 128
  blink bench serve http://127.0.0.1:8000 --agents 8,32 --duration 180 --drop 0.2
  blink bench serve http://127.0.0.1:8000 --concurrency 1,8,32,64 --input 1024 --output 256
  blink bench serve http://127.0.0.1:8000 --preset inferencex-8k-1k --concurrency 4,16
  blink bench serve http://127.0.0.1:8000 --rate 8 --antagonists copy,map,sort,spawn --cores 0-11"""
CONTACT_S = 10.0
LATE_MS = 5.0  # p99 of a load process's event loop or of its sending, likewise


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = f"{EPILOG}\n\n{listing()}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("url", metavar="URL", help="of the server, with or without /v1")
    add_flags(parser, "load", ServeOptions, LOAD)
    add_flags(parser, "conversations", ServeOptions, CONVERSATIONS)
    add_flags(parser, "agents", ServeOptions, AGENTS)
    add_flags(parser, "conversations and agents", ServeOptions, HISTORIES)
    add_flags(parser, "measurement", ServeOptions, MEASUREMENT)


def main(namespace: argparse.Namespace) -> int:
    chosen = given(namespace, FLAGS)
    chosen = chosen_with(chosen.get("preset"), chosen)
    values: dict[str, Any] = {"api_key": os.environ.get(API_KEY_VARIABLE) or None}
    options = ServeOptions(**(values | (OF_AGENTS if "agents" in chosen else {}) | chosen))
    check(options)
    refuse_strays(namespace, options)
    target = find(namespace.url, options)
    result = run(target, options)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if result["points"]:
        print(report.table(result))
    if result["interrupted"]:
        told = f"{len(result['points'])} of {len(levels(options)) * len(loads(options))} windows are complete"
        print(f"interrupted: {told}", file=sys.stderr)
        return 130
    if options.plot is not None:
        from blink.bench import plots

        plots.draw([result], options.plot)
    return 0 if all(point["requests_complete"] for point in result["points"]) else 1


def check(options: ServeOptions) -> None:
    """Raises CommandError for flags that do not go together, before anything is measured."""
    if sum(map(bool, (options.rate, options.concurrency, options.conversations, options.agents))) != 1:
        raise CommandError("give one of --rate, --concurrency, --conversations and --agents, or a --preset")
    if options.conversations and len(options.each) not in (1, len(options.conversations)):
        raise CommandError("--each is one number, or as many as --conversations has")
    for name, longest in (("--input", options.input.high), ("--system", options.system)):
        if longest > MAX_PROMPT:
            raise CommandError(f"{name}: {longest} tokens; prompts of up to {MAX_PROMPT} can be made")
    if options.agents:
        check_context(options)
    if options.antagonists and not options.cores:
        raise CommandError("--antagonists needs --cores: those that the server runs on")
    if options.cores and not options.antagonists:
        raise CommandError("--cores is where --antagonists run: name some")
    if options.plot is not None:
        from blink.bench import plots

        plots.require()


def check_context(options: ServeOptions) -> None:
    """Raises CommandError where no session could be planned."""
    least = least_context(options.input, options.output, options.system)
    if options.context < least:
        raise CommandError(
            f"--context: {options.context} tokens hold no turn: --system {options.system}, --input of up to "
            f"{options.input.high} and --output of up to {options.output.high} need {least}"
        )
    if options.context > MAX_PROMPT:
        raise CommandError(f"--context: {options.context} tokens; prompts of up to {MAX_PROMPT} can be made")


def refuse_strays(namespace: argparse.Namespace, options: ServeOptions) -> None:
    """Raises CommandError for flags of a load that was not asked for."""
    groups: tuple[tuple[str, bool, tuple[Flag, ...]], ...] = (
        ("--conversations", bool(options.conversations), CONVERSATIONS),
        ("--agents", bool(options.agents), AGENTS),
        ("--conversations or --agents", bool(options.conversations or options.agents), HISTORIES),
    )
    told = [
        f"only with {loads}: {', '.join(flag.name for flag in flags if flag.field in stray)}"
        for loads, is_asked, flags in groups
        if not is_asked and (stray := given(namespace, flags))
    ]
    if told:
        raise CommandError("; ".join(told))


def find(url: str, options: ServeOptions) -> Target:
    """The server and its model. Raises CommandError when nobody answers as a server of OpenAI's API does,
    and when its contexts are shorter than those of the agents.
    """
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise CommandError(f"'{url}' is not an http:// URL")
    root = parts.path.rstrip("/").removesuffix("/v1")
    port = parts.port or 80
    listed: dict[str, Any] = {}
    if options.model is None or options.agents:
        try:
            listed = _model(parts.hostname, port, f"{root}/v1/models", options.api_key, options.model)
        except CommandError:
            if options.model is None:
                raise
    model = options.model or str(listed["id"])
    if options.agents:
        refuse_long_contexts(listed.get("max_model_len"), options)
    path = f"{root}/v1/{KINDS[options.prompts].endpoint}"
    return Target(parts.hostname, port, path, model, options.api_key, not options.respect_eos)


def refuse_long_contexts(longest: object, options: ServeOptions) -> None:
    """`longest`: the server's max_model_len, which OpenAI's API does not have. Raises CommandError."""
    if isinstance(longest, int) and longest < options.context:
        least = least_context(options.input, options.output, options.system)
        own = f"--context {longest}" if longest >= least else f"shorter lengths and --context {longest}"
        raise CommandError(
            f"sessions grow to --context {options.context} tokens, and the server's contexts have {longest}: "
            f"give {own} for every server that is compared, or start this one with longer contexts"
        )


def _model(host: str, port: int, path: str, api_key: str | None, name: str | None) -> dict[str, Any]:
    """What the server's list of models says of the one with the name, or of its first. Nothing, where it does
    not list the name. Raises CommandError without a server, or a list.
    """
    connection = http.client.HTTPConnection(host, port, timeout=CONTACT_S)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {api_key}"} if api_key else {})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise CommandError(
                f"{host}:{port}{path} answers {answer.status}: {body[:200].decode(errors='replace')}"
            )
        models = json.loads(body)["data"]
        found = [model for model in models if name in (None, model["id"])]
        return dict(found[0]) if found or name is None else {}
    except (OSError, http.client.HTTPException) as error:
        raise CommandError(f"no server at {host}:{port}: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise CommandError(f"{host}:{port}{path} names no model: give it with --model") from error
    finally:
        connection.close()


def run(target: Target, options: ServeOptions) -> dict[str, Any]:
    """All windows, or with Ctrl-C those before it. Returns what --json writes."""
    began = time.time()
    meter = EnergyMeter(options.gpu) if options.energy else None
    points: list[dict[str, Any]] = []
    traces: dict[str, Any] = {}
    interrupted = False
    prompts = Prompts(options.seed, *(options.tokens if options.prompts == "ids" else WORDS_RANGE))
    try:
        with Fleet(options.clients, target, prompts) as fleet:
            if options.warmup:
                require_success(fleet, options)
            measure_all(fleet, options, meter, points, traces)
    except KeyboardInterrupt:
        interrupted = True
    if meter is not None:
        meter.close()
    return {
        "server": options.name or f"http://{target.host}:{target.port}",
        "model": target.model,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "client": environment.describe(),
        "options": environment.plain(options),
        "preset": described(options.preset),
        "traces": traces,
        "points": points,
        "interrupted": interrupted,
        "serviceable_rule": SERVICEABLE_RULE,
        "serviceable_per_s": {
            str(level): serviceable([p for p in points if p["antagonists_per_core"] == level])
            for level in dict.fromkeys(p["antagonists_per_core"] for p in points)
        },
    }


def measure_all(
    fleet: Fleet,
    options: ServeOptions,
    meter: EnergyMeter | None,
    points: list[dict[str, Any]],
    traces: dict[str, Any],
) -> None:
    """Appends a point for each window that is complete, and says so."""
    for level in levels(options):
        for load in loads(options):
            others = f", {level} antagonists a core" if level else ""
            print(f"{load.label}{others}", file=sys.stderr, flush=True)
            traces[load.label] = load.work.summary()
            if options.every_s is not None:
                time.sleep(-time.time() % options.every_s)
            point: dict[str, Any] = {
                "rate": load.rate,
                "concurrency": load.concurrency,
                "antagonists_per_core": level,
                "began": time.time(),
            }
            with contextlib.ExitStack() as stack:
                work: dict[str, int] = {}
                if options.antagonists and options.cores and level:
                    antagonists = Antagonists(options.antagonists, level, options.cores)
                    work = stack.enter_context(antagonists).work
                point |= window(fleet, load, options, meter)
            point["antagonist_work"] = work
            points.append(point)
            print(f"  {report.line(point)}", file=sys.stderr, flush=True)
            time.sleep(options.pause_s)


def levels(options: ServeOptions) -> tuple[int, ...]:
    """Antagonists a core, of each turn through the loads."""
    return options.per_core if options.antagonists else (0,)


def require_success(fleet: Fleet, options: ServeOptions) -> None:
    """The warm-up. Raises CommandError when none of its requests succeeds: nothing would be measured."""
    work = warm_up(options)
    if isinstance(work, Conversations):
        outcomes = fleet.converse(work, options.duration_s, options.drain_s).outcomes
    elif isinstance(work, Agents):
        outcomes = fleet.run_agents(work, 0.01, 0.0, options.drain_s).outcomes
    else:
        outcomes = fleet.run(work, None, 0.01, 0.0, options.drain_s).outcomes
    if not any(outcome.ok for outcome in outcomes):
        raise CommandError(f"no request of the warm-up succeeded: {outcomes[0].error}")


def window(fleet: Fleet, load: Load, options: ServeOptions, meter: EnergyMeter | None) -> dict[str, Any]:
    """One window's point."""
    cpu: list[list[float]] = []
    watched = options.watch or ()

    def at_steady() -> None:
        cpu.append([cpu_seconds(watch) for watch in watched])
        if meter is not None:
            meter.start()

    def at_end() -> None:
        if meter is not None:
            meter.stop()
        cpu.append([cpu_seconds(watch) for watch in watched])

    work, bounds = load.work, (options.duration_s, options.drop, options.drain_s)
    if isinstance(work, Conversations):
        ran = fleet.converse(work, options.duration_s, options.drain_s, at_steady, at_end)
        point = measure(ran.outcomes, ran.steady_ns, options.slo) | measure_turns(ran.outcomes, work)
    elif isinstance(work, Agents):
        ran = fleet.run_agents(work, *bounds, at_steady, at_end)
        figures = measure_sessions(ran.outcomes, work, ran.steady_ns)
        point = measure(ran.outcomes, ran.steady_ns, options.slo) | figures
    else:
        ran = fleet.run(work, load.concurrency, *bounds, at_steady, at_end)
        point = measure(ran.outcomes, ran.steady_ns, options.slo)
    if options.levels is not None:
        point["levels"] = judged(point, options.levels)
    tokens = tokens_between(ran.outcomes, *ran.steady_ns)
    if meter is not None:
        point["energy"] = meter.result(tokens)
    point["cpu"] = {
        watch.name: {
            "seconds": after - before,
            "seconds_per_thousand_tokens": (after - before) / tokens * 1e3 if tokens else None,
        }
        for watch, before, after in zip(watched, *cpu, strict=True)
    }
    point["client"] = client_health(ran, load.rate is not None)
    return point


def client_health(ran: Run, is_open_loop: bool) -> dict[str, Any]:
    """What the load processes may have added, and whether they were the bottleneck (B5)."""
    health = {
        "loop_late_p99_ms": late_p99_ms(ran.lags),
        "send_late_p99_ms": send_late_p99_ms(ran.outcomes) if is_open_loop else None,
        "busiest_cpu_share": max(lag.cpu_share for lag in ran.lags),
    }
    late = max(health["loop_late_p99_ms"] or 0.0, health["send_late_p99_ms"] or 0.0)
    return health | {"bottleneck": late > LATE_MS or (health["busiest_cpu_share"] or 0.0) > report.BUSY_SHARE}
