// The chat: what was said, and an answer as it comes.

const HINT = "What you ask goes to the model that this server has. Watch on the right what it makes the machine do.";

// Events of a stream, as objects.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
    }
  }
}

// A conversation, and the part of the page that shows it. An answer holds on to the chat that it belongs to: whatever
// still comes of it when another chat has begun stays there, unseen.
class Chat {
  constructor() {
    this.said = []; // messages as the API takes them
    this.answering = null; // an AbortController while an answer comes
    this.log = element("div", "log");
    this.log.append(element("p", "hint", HINT));
  }

  // A message on the page, scrolled to. Returns what its text goes into.
  addMessage(kind, text) {
    this.log.querySelector(".hint")?.remove();
    const message = element("div", `message ${kind}`);
    const body = element("span", "", text);
    message.append(body);
    this.log.append(message);
    this.scroll();
    return { message, body };
  }

  scroll() {
    const list = byId("messages");
    if (this === chat) list.scrollTop = list.scrollHeight;
  }

  // The request for the next answer: its URL and its body.
  request(question) {
    const body = { stream: true, stream_options: { include_usage: true } };
    const temperature = byId("temperature").value, most = byId("max-tokens").value;
    if (temperature !== "") body.temperature = Number(temperature);
    if (most !== "") body.max_tokens = Number(most);
    if (byId("plain").checked) return ["/v1/completions", { ...body, prompt: question }];
    return ["/v1/chat/completions", { ...body, messages: this.said }];
  }

  async ask(question) {
    this.said.push({ role: "user", content: question });
    this.addMessage("user", question);
    this.answering = new AbortController();
    showSend();
    try {
      await this.showAnswer(question);
    } catch (error) {
      if (error.name !== "AbortError") this.addMessage("error", error.message);
      if (this.said.at(-1).role === "user") this.said.pop(); // no answer: the next question does not lean on this one
    } finally {
      this.answering = null;
      showSend();
    }
  }

  async showAnswer(question) {
    const [url, body] = this.request(question);
    const began = performance.now();
    const answer = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", ...keyHeaders() },
      body: JSON.stringify(body),
      signal: this.answering.signal,
    });
    if (answer.status === 401) askForKey();
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const shown = this.addMessage("assistant", "");
    const thought = element("span", "thought");
    shown.message.prepend(thought);
    const figures = { first: null, last: null, chunks: 0, usage: null };
    const message = { role: "assistant", content: "" };
    try {
      for await (const event of events(answer)) {
        if (event.error) throw new Error(event.error.message);
        if (event.usage) figures.usage = event.usage;
        const choice = event.choices?.[0];
        if (!choice) continue;
        figures.last = performance.now();
        figures.first ??= figures.last;
        figures.chunks += 1;
        const list = byId("messages"), atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
        thought.textContent += choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
        message.content += choice.delta?.content ?? choice.text ?? "";
        shown.body.textContent = message.content;
        if (atEnd) this.scroll();
      }
    } finally {
      if (message.content) this.said.push(message);
      shown.message.append(element("span", "figures", describe(figures, began)));
      this.scroll();
    }
  }
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

let chat; // the one that is shown

function begin() {
  chat?.answering?.abort(); // the server then cancels the request
  chat = new Chat();
  byId("messages").replaceChildren(chat.log);
  showSend();
  byId("question").focus();
}

function showSend() {
  show("send", chat.answering ? "Stop" : "Send");
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const box = byId("question"), question = box.value.trim();
  box.focus();
  if (chat.answering) return chat.answering.abort();
  if (!question) return undefined;
  box.value = "";
  return chat.ask(question);
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!chat.answering) byId("ask").requestSubmit();
});
byId("clear").addEventListener("click", begin);
byId("key").addEventListener("change", () => {
  sessionStorage.setItem("blink-key", byId("key").value);
  look();
});
begin();
