// The machine: what the ring and the frontends say once a second.

import { drawParts, Series } from "./charts.js";
import { byId, show } from "./dom.js";
import { call } from "./server.js";
import { duration, number } from "./numbers.js";
import { showSteps } from "./steps.js";

const LOOK_MS = 1000;
const MEAN_S = 10; // that latencies and rates in tiles are means of
const SLOT_STATES = [
  ["waiting", ["prefill_pending"], "k3"],
  ["prefill", ["prefill_processing"], "k2"],
  ["decode", ["decode_processing"], "k1"],
  ["paused", ["decode_paused"], "k4"],
  ["answered", ["decode_completed"], "k0"],
];

const charts = { rate: new Series("rate"), ttft: new Series("ttft"), itl: new Series("itl") };
let seen = []; // the last MEAN_S seconds and one

async function look() {
  if (document.visibilityState === "hidden") return;
  try {
    const answer = await call("live");
    showState(await answer.json());
  } catch (error) {
    if (error.status === 401) note("needs the API key", "bad");
    else note(error.status ? error.message : "the server does not answer", "bad");
  }
}

export function note(text, kind) {
  show("phase", text);
  byId("phase").className = kind;
}

function showState(state) {
  const serving = state.phase === "SERVING";
  note(state.phase.toLowerCase(), serving ? "good" : "bad");
  const frontends = state.frontends > 1 ? `, ${state.frontends} frontends` : "";
  show("what", `${state.model} on ${state.device}${frontends}, version ${state.version}`);
  document.title = `${state.model} · Blink`;
  seen = [...seen.filter((one) => state.time_s - one.time_s <= MEAN_S), state];
  showRates(state);
  showSlots(state);
  showPages(state);
  showSteps(state.steps);
}

// What grew between two looks, a second.
function rate(from, to, get) {
  const seconds = to.time_s - from.time_s;
  return seconds > 0 ? Math.max(0, get(to) - get(from)) / seconds : null;
}

// Mean of what a histogram has got since, in ms; null where nothing came.
function meanMs(from, to, name) {
  const [a, b] = [from.histograms[name], to.histograms[name]];
  const total = (counts) => counts.reduce((sum, count) => sum + count, 0);
  const n = total(b.counts) - total(a.counts);
  return n > 0 ? (1e3 * (b.sum - a.sum)) / n : null;
}

function showRates(state) {
  const [first, before] = [seen[0], seen.at(-2)];
  if (!before) return;
  const tokens = (one) => one.counters.generation_tokens;
  const queries = state.stats.prefix_queries - first.stats.prefix_queries;
  const hits = state.stats.prefix_hits - first.stats.prefix_hits;
  show("out-rate", number(rate(first, state, tokens)));
  show("in-rate", number(rate(first, state, (one) => one.counters.prompt_tokens)));
  const latency = (id, name) => {
    const mean = meanMs(first, state, name);
    show(id, mean === null ? "–" : duration(mean * 1e6));
    charts[id].add(meanMs(before, state, name));
  };
  latency("ttft", "time_to_first_token_seconds");
  latency("itl", "inter_token_latency_seconds");
  charts.rate.add(rate(before, state, tokens));
  show("hits", queries > 0 ? `${number((100 * hits) / queries)} %` : "–");
  showCpu(first, state);
}

function showCpu(first, state) {
  const known = state.backend_cpu_s !== null && first.backend_cpu_s !== null;
  show("cpu", known ? rate(first, state, (one) => one.backend_cpu_s).toFixed(2) : "–");
  const emulated = state.device === "cpu";
  show("machine-note", emulated ? "the CPU emulation: what a GPU would do runs on this host's cores" : "");
}

function showSlots(state) {
  const parts = SLOT_STATES.map(([name, states, kind]) =>
    [name, states.reduce((sum, one) => sum + state.slots[one], 0), kind]);
  const taken = parts.reduce((sum, [, count]) => sum + count, 0);
  drawParts("slots", parts, state.limits.max_batch > taken ? state.limits.max_batch : taken);
  show("slots-note", `${taken} of ${state.limits.n_slots.toLocaleString("en")} taken, a batch of up to `
    + `${state.limits.max_batch}`);
}

function showPages(state) {
  const { free_pages: free, cached_pages: cached } = state.stats;
  const total = state.limits.total_pages, used = total - free;
  drawParts("pages", [["in use", used, "k1"], ["prefix cache", cached, "k2"], ["free", free - cached, "k0"]], total);
  const tokens = total * state.limits.page_size;
  show("pages-note", `${total.toLocaleString("en")} of ${state.limits.page_size} tokens: room for `
    + `${tokens.toLocaleString("en")}`);
}

setInterval(look, LOOK_MS);
document.addEventListener("visibilitychange", look);
byId("key").addEventListener("change", look);
look();
