// Markdown that arrives in pieces, shown as elements at once. What is shown depends on the text alone, and not on how it
// was cut into pieces.
//
// No text becomes HTML: every element is made by its name, and texts go into text nodes.

import { element } from "../dom.js";
import { Code } from "./code.js";
import { LONGEST_LINE, read } from "./lines.js";
import { Table } from "./table.js";
import { Writer } from "./writer.js";

const LONGEST_TEXT = 8192; // of a paragraph; a longer one goes on in another, so that a token's cost is bounded
const LONGEST_NAME = 40; // of a language

// A paragraph. `head` is its line if that may be the head of a table.
class Text {
  kind = "text";

  constructor(parent) {
    this.parent = parent;
    this.line = ""; // the first, or as much of it as may be a head
    this.lines = 0;
    this.begin();
  }

  begin() {
    this.element = this.parent.appendChild(element("p"));
    this.writer = new Writer(this.element);
    this.length = 0;
  }

  write(text) {
    if (!this.lines && this.line.length <= LONGEST_LINE) this.line += text.slice(0, LONGEST_LINE + 1);
    for (let from = 0; from < text.length;) {
      let end = Math.min(text.length, from + LONGEST_TEXT - this.length);
      if (end < text.length && isHigh(text.charCodeAt(end - 1))) end -= 1; // both halves go into the next one
      this.writer.write(text.slice(from, end));
      this.length += end - from;
      if (end < text.length || this.length === LONGEST_TEXT) this.begin();
      from = end;
    }
  }

  beginLine(text) {
    this.write(`\n${text}`);
  }

  endLine() {
    this.lines += 1;
  }

  get head() {
    const isHead = this.lines === 1 && this.line.length <= LONGEST_LINE && this.line.includes("|");
    return isHead ? this.line : null;
  }

  get isRow() {
    return this.line.startsWith("|");
  }
}

function isHigh(unit) {
  return (unit & 0xfc00) === 0xd800;
}

export class Markdown {
  constructor(root) {
    this.root = { element: root, list: null };
    this.containers = []; // quotes and list items that stand open, from the outside to the inside
    this.leaf = null; // the block that the next text may belong to
    this.held = ""; // the beginning of a line of which it is not known yet what it is
    this.line = null; // what takes the rest of the line, once that is known
  }

  write(text) {
    const lines = text.replaceAll("\r", "").split("\n");
    for (const [i, part] of lines.entries()) {
      if (i) this.endLine();
      if (part) this.writePart(part);
    }
  }

  end() {
    if (this.held) this.endLine();
  }

  writePart(part) {
    if (this.line) return this.line.write(part);
    this.held += part;
    const isLong = this.held.length > LONGEST_LINE, known = isLong ? this.held.slice(0, LONGEST_LINE) : this.held;
    const found = read(known, "part", this) ?? (isLong ? read(known, "long", this) : null);
    if (!found) return undefined;
    const rest = this.held.slice(known.length);
    this.line = this.take(found);
    this.held = "";
    return rest && this.line.write(rest);
  }

  endLine() {
    const leaf = this.line ?? this.take(read(this.held, "whole", this));
    leaf?.endLine?.();
    this.line = null;
    this.held = "";
  }

  get innermost() {
    return this.containers.at(-1) ?? this.root;
  }

  // Shows what was read of a line. Returns the block that takes the rest of the line, if one does.
  take(found) {
    const { kind, text, within, opens } = found;
    const goesOn = this.leaf?.kind === "text" && kind === "text" && !opens.length; // also without the marks before it
    if (goesOn && (this.leaf.isRow || text[0] !== "|")) {
      this.leaf.beginLine(text);
      return this.leaf;
    }
    if (within < this.containers.length || opens.length) this.leaf = null;
    this.containers.length = within;
    for (const container of opens) this.open(container);
    if (kind === "row") return this.leaf.add(text);
    if (kind === "code") return this.takeCode(text);
    return this.begin(found);
  }

  open(container) {
    const outer = this.innermost;
    if (container.kind === "quote") {
      this.containers.push({ ...container, element: this.append(element("blockquote")), list: null });
      return;
    }
    const { tag, mark, start } = container.list;
    if (outer.list?.mark !== mark) {
      const list = element(tag);
      if (tag === "ol") list.start = start;
      outer.element.append(list);
      outer.list = { element: list, mark };
    }
    const item = outer.list.element.appendChild(element("li"));
    this.containers.push({ ...container, element: item, list: null });
  }

  // Puts an element into the innermost container, where it ends a list.
  append(made) {
    this.innermost.list = null;
    this.innermost.element.append(made);
    return made;
  }

  takeCode(text) {
    this.leaf.code.beginLine();
    this.leaf.code.write(text);
    return this.leaf.code;
  }

  // Begins a block, or ends one.
  begin({ kind, text, level, fence, language, head, columns, indent }) {
    const before = this.leaf;
    this.leaf = null;
    if (kind === "text") return this.beginText(text);
    if (kind === "heading") new Writer(this.append(element(`h${level}`))).write(text);
    if (kind === "rule") this.append(element("hr"));
    if (kind === "fence") {
      this.innermost.list = null;
      const code = new Code(this.innermost.element, language.split(/\s/)[0].slice(0, LONGEST_NAME));
      this.leaf = { kind: "code", fence, indent, code };
    }
    if (kind === "table") {
      before.element.remove();
      const table = new Table(this.innermost.element, head, columns);
      this.leaf = { kind: "table", add: (row) => table.add(row) };
    }
    return undefined;
  }

  beginText(text) {
    this.innermost.list = null;
    this.leaf = new Text(this.innermost.element);
    this.leaf.write(text);
    return this.leaf;
  }
}
