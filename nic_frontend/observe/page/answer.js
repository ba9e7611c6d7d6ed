// An answer on the page, as it comes: its thoughts and tool calls, folded, and its text.

import { copyButton } from "./copy.js";
import { element } from "./dom.js";
import { Markdown } from "./markdown/blocks.js";
import { duration } from "./numbers.js";

export class Answer {
  constructor(message) {
    this.message = message;
    this.thoughts = null;
    this.text = null;
    this.source = ""; // of the text
    this.calls = []; // as the API has them in messages
    this.arguments = []; // text nodes, of each call
  }

  // Shows what some choices of events add.
  add(deltas) {
    const joined = (get) => deltas.map((delta) => get(delta) ?? "").join("");
    const thoughts = joined((delta) => delta.reasoning_content ?? delta.reasoning);
    const text = joined((delta) => delta.content);
    if (thoughts) this.think(thoughts);
    if (text) this.say(text);
    for (const call of deltas.flatMap((delta) => delta.tool_calls ?? [])) this.addToCall(call);
  }

  think(text) {
    this.thoughts ??= new Thoughts(this.message);
    this.thoughts.write(text);
  }

  say(text) {
    this.thoughts?.end();
    this.text ??= new Markdown(this.message.appendChild(element("div", "text")));
    this.source += text;
    this.text.write(text);
  }

  addToCall({ index, id, function: called }) {
    this.thoughts?.end();
    this.calls[index] ??= this.beginCall(index, id, called.name);
    const added = called.arguments ?? "";
    this.calls[index].function.arguments += added;
    this.arguments[index].appendData(added);
  }

  beginCall(index, id, name) {
    const folded = this.message.appendChild(element("details", "call"));
    folded.append(element("summary", "", `Calls ${name}`));
    this.arguments[index] = folded.appendChild(element("pre")).appendChild(document.createTextNode(""));
    return { id, type: "function", function: { name, arguments: "" } };
  }

  // What follows the answer: how fast it was, and a button that copies its text.
  end(figures) {
    this.thoughts?.end();
    this.text?.end();
    const foot = this.message.appendChild(element("div", "foot"));
    foot.append(element("span", "figures", figures));
    if (this.source) foot.append(copyButton(() => this.source, "Copy the answer"));
  }
}

class Thoughts {
  constructor(message) {
    const folded = message.appendChild(element("details", "thought"));
    this.title = folded.appendChild(element("summary", "", "Thinking …"));
    this.text = new Markdown(folded.appendChild(element("div", "text")));
    this.began = performance.now();
    this.isOver = false;
  }

  write(text) {
    this.text.write(text);
  }

  end() {
    if (this.isOver) return;
    this.isOver = true;
    this.text.end();
    this.title.textContent = `Thought for ${duration((performance.now() - this.began) * 1e6)}`;
  }
}
