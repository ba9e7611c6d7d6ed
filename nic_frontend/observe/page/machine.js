// The machine: what the ring and the frontends say once a second.

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

function apiKey() {
  return byId("key").value || sessionStorage.getItem("blink-key") || "";
}

function keyHeaders() {
  return apiKey() ? { authorization: `Bearer ${apiKey()}` } : {};
}

function askForKey() {
  byId("key-row").hidden = false;
}

async function look() {
  if (document.visibilityState === "hidden") return;
  try {
    const answer = await fetch("/live", { headers: keyHeaders() });
    if (answer.status === 401) {
      askForKey();
      return note("needs the API key", "bad");
    }
    const state = await answer.json();
    if (!answer.ok) return note(state.error.message, "bad");
    showState(state);
  } catch (error) {
    note("the server does not answer", "bad");
  }
}

function note(text, kind) {
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
  showSteps(state);
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

// Each step as a box from its begin to its end; what lies between two is the gap.
function showSteps(state) {
  const steps = recent(state.steps), svg = byId("steps");
  drawLegend(byId("steps-legend"), [
    ["decode", "k1"], ["prompts", "k2"], ["both", "k3"], ["gap over 5 % of a step", "kbad"],
  ]);
  if (!steps.length) return show("steps-note", "none yet");
  const [width, height] = [svg.clientWidth || 600, 46];
  const begin = steps[0].start_ns, end = steps.at(-1).start_ns + steps.at(-1).ns;
  const x = (ns) => (width * (ns - begin)) / Math.max(end - begin, 1);
  const usual = middle(steps.map((step) => step.ns));
  const boxes = steps.map((step) => {
    const kind = step.prompt_tokens ? (step.decoding ? "f3" : "f2") : "f1";
    const wide = Math.max(x(step.start_ns + step.ns) - x(step.start_ns) - 0.5, 0.5);
    const box = shape("rect", { x: x(step.start_ns), y: 4, width: wide, height: 24, rx: 1, class: kind });
    box.append(shape("title", {}, `step ${step.id}: ${duration(step.ns)}, ${step.decoding} sequences decode, `
      + `${step.prompt_tokens} prompt tokens`));
    return box;
  });
  const gaps = [];
  for (let i = 1; i < steps.length; i++) {
    const from = steps[i - 1].start_ns + steps[i - 1].ns, gap = Math.max(0, steps[i].start_ns - from);
    gaps.push(gap);
    if (gap > usual / 20) {
      boxes.push(shape("rect", { x: x(from), y: 30, width: Math.max(x(from + gap) - x(from), 1), height: 3, class: "fbad" }));
    }
  }
  boxes.push(shape("text", { x: 0, y: height }, `step ${steps[0].id}`));
  boxes.push(shape("text", { x: width, y: height, "text-anchor": "end" }, `step ${steps.at(-1).id}`));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...boxes);
  const between = gaps.length ? `, gap ${duration(middle(gaps))} (median), ${duration(Math.max(...gaps))} at most` : "";
  show("steps-note", `${steps.length} in ${duration(end - begin)}, step ${duration(usual)} (median)${between}`);
}

// The last steps without a pause in which there was nothing to do: from the last gap of 20 steps' time on.
function recent(steps) {
  const usual = middle(steps.map((step) => step.ns));
  let from = 0;
  for (let i = 1; i < steps.length; i++) {
    if (steps[i].start_ns - steps[i - 1].start_ns - steps[i - 1].ns > 20 * usual) from = i;
  }
  return steps.slice(from);
}

setInterval(look, LOOK_MS);
document.addEventListener("visibilitychange", look);
look();
