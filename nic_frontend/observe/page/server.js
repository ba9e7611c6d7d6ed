// Requests to the server that the page came from, with the API key if the server wants one. Paths are relative to the
// page, which need not lie at the root of its host.

import { byId } from "./dom.js";

const KEPT = "blink-key"; // a tab keeps the key until it is closed

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function key() {
  return byId("key").value || sessionStorage.getItem(KEPT) || "";
}

export function wantsKey() {
  return Boolean(key()) || !byId("key-row").hidden;
}

// The server's answer. Throws Refused, with the server's message, for another status than 200.
export async function call(path, { headers = {}, ...options } = {}) {
  const authorization = key() ? { authorization: `Bearer ${key()}` } : {};
  const answer = await fetch(path, { ...options, headers: { ...headers, ...authorization } });
  if (answer.status === 401) byId("key-row").hidden = false;
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null); // a proxy's error is no JSON
  throw new Refused(answer.status, body?.error?.message ?? `the server answered with status ${answer.status}`);
}

// The events of a stream, in arrays: those that have arrived together.
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    yield lines.filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)));
  }
}

byId("key").addEventListener("change", () => sessionStorage.setItem(KEPT, byId("key").value));
