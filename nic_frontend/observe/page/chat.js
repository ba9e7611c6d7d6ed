// A conversation, and the part of the page that shows it. An answer holds on to the chat that it belongs to: whatever
// still comes of it when another chat has begun stays there, unseen.

import { Answer } from "./answer.js";
import { byId, element } from "./dom.js";
import { duration, number } from "./numbers.js";
import { call, events } from "./server.js";

const HINT = "What you ask goes to the model that this server has. Watch on the right what it makes the machine do.";
const NEAR_END = 40; // pixels from the end within which the list follows what comes

export class Chat {
  // `changed` is called when an answer begins or ends.
  constructor(changed) {
    this.changed = changed;
    this.said = []; // messages as the API takes them
    this.owed = []; // calls of the last answer whose results the user has not given yet
    this.answering = null; // an AbortController while an answer comes
    this.log = element("div", "log");
    this.log.append(element("p", "hint", HINT));
  }

  addMessage(kind, text) {
    this.log.querySelector(".hint")?.remove();
    const message = this.log.appendChild(element("div", `message ${kind}`, text));
    this.scroll();
    return message;
  }

  scroll() {
    const list = this.log.parentElement; // null behind another chat
    if (list) list.scrollTop = list.scrollHeight;
  }

  get isAtEnd() {
    const list = this.log.parentElement;
    return Boolean(list) && list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END;
  }

  // Says something to the model, or gives a call's result; the model then answers, once it has all results.
  async say(text) {
    const [before, owed] = [this.said.length, this.owed];
    const message = owed.length ? { role: "tool", tool_call_id: owed[0].id } : { role: "user" };
    this.said.push({ ...message, content: text });
    this.owed = owed.slice(1);
    this.addMessage(message.role, text);
    if (this.owed.length) return this.changed();
    this.answering = new AbortController();
    this.log.ariaBusy = "true"; // read aloud when it is whole
    this.changed();
    try {
      await this.showAnswer(text);
    } catch (error) {
      if (error.name !== "AbortError") this.addMessage("error", error.message);
      if (this.said.at(-1).role !== "assistant") { // no answer: what is said next does not lean on this
        this.said.length = before;
        this.owed = owed;
      }
    } finally {
      this.answering = null;
      this.log.ariaBusy = "false";
      this.changed();
    }
    return undefined;
  }

  // The path and the body of the request for the next answer. Throws an error where the tools are no JSON.
  request(text) {
    const body = { stream: true, stream_options: { include_usage: true } };
    const temperature = byId("temperature").value, most = byId("max-tokens").value;
    if (temperature !== "") body.temperature = Number(temperature);
    if (most !== "") body.max_tokens = Number(most);
    if (byId("plain").checked) return ["v1/completions", { ...body, prompt: text }];
    const system = byId("system").value.trim(), tools = byId("tools").value.trim();
    if (tools) body.tools = parseTools(tools);
    const instructions = system ? [{ role: "system", content: system }] : [];
    return ["v1/chat/completions", { ...body, messages: [...instructions, ...this.said] }];
  }

  async showAnswer(text) {
    const [path, body] = this.request(text), began = performance.now();
    const stream = await call(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: this.answering.signal,
    });
    const shown = new Answer(this.addMessage("assistant"));
    const seen = { first: null, last: null, chunks: 0, usage: null, isWhole: false };
    try {
      for await (const arrived of events(stream)) {
        const isAtEnd = this.isAtEnd;
        shown.add(note(arrived, seen));
        if (isAtEnd) this.scroll();
        const failed = arrived.find((event) => event.error);
        if (failed) throw new Error(failed.error.message);
      }
    } finally {
      this.keep(shown, seen.isWhole);
      shown.end(describe(seen, began));
      this.scroll();
    }
  }

  // Notes what the model said for the requests to come. Calls that were cut short are left out.
  keep(shown, isWhole) {
    const calls = isWhole ? shown.calls : [];
    if (!shown.source && !calls.length) return;
    this.said.push({ role: "assistant", content: shown.source, ...(calls.length ? { tool_calls: calls } : {}) });
    this.owed = calls;
  }
}

function parseTools(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the tools must be a JSON array: ${error.message}`);
  }
}

// What events add to the answer, after noting in `seen` what they tell of it.
function note(arrived, seen) {
  const deltas = [];
  for (const { usage, choices } of arrived) {
    if (usage) seen.usage = usage;
    if (!choices?.length) continue;
    seen.last = performance.now();
    seen.first ??= seen.last;
    seen.chunks += 1;
    if (choices[0].finish_reason) seen.isWhole = true;
    deltas.push(choices[0].delta ?? { content: choices[0].text });
  }
  return deltas;
}

// How fast it was, as the browser saw it.
function describe({ first, last, chunks, usage }, began) {
  if (first === null) return "no answer";
  const tokens = usage?.completion_tokens ?? chunks;
  const parts = [`${tokens} tokens`, `first after ${duration((first - began) * 1e6)}`];
  if (tokens > 1 && last > first) parts.push(`${number(((tokens - 1) * 1e3) / (last - first))} tokens/s`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (usage) parts.push(`${usage.prompt_tokens} in the prompt${cached ? `, ${cached} of them cached` : ""}`);
  return parts.join(" · ");
}
