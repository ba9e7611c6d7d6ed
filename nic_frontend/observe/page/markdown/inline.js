// Markdown within a line or paragraph: emphasis, code, links. It follows CommonMark, with GitHub's ~~strikethrough~~
// and bare links, except that HTML is text (but for <br>) and that links by reference are not known.
//
// The parser makes plain objects, {kind, start, end} with `text` or `children`, where start and end are offsets in the
// source. Its time is linear in the length of the source, but for searches that the regular expressions below bound.

import { safeUrl } from "./links.js";

const SPECIAL = /[\\`*_~[\]!<&]|\bhttps?:\/\//g;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const ESCAPE = /\\([!-/:-@[-`{-~])/y;
const ENTITY = /&(amp|lt|gt|quot|apos|#39|nbsp);/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", "#39": "'", nbsp: "\u00a0" };
const BREAK = /<br ?\/?>/iy;
const BREAK_LENGTH = 6; // the longest form, "<br />"
const POINTED_URL = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const BARE_URL = /https?:\/\/(?:(?![<>`"[\]])[!-~]){1,2000}/y; // ASCII alone: other scripts' punctuation follows unspaced
const TARGET = /\([ \n]{0,4}(?:<([^<>\n]{0,2000})>|((?:[^\s()<>]|\([^\s()<>]{0,200}\)){0,2000}))(?:[ \n]{1,4}(?:"[^"\n]{0,200}"|'[^'\n]{0,200}'))?[ \n]{0,4}\)/y;
const TARGET_LENGTH = 2300; // of what TARGET may still match as its text arrives

function at(expression, text, position) {
  expression.lastIndex = position;
  return expression.exec(text);
}

class Parser {
  constructor(text) {
    this.text = text;
    this.items = []; // what has been found, in order; runs of * and _ among them
    this.runs = []; // those runs which are not in a link
    this.brackets = []; // items that may begin a link
    this.ticks = null; // where runs of backticks of each length begin
    this.openFrom = text.length; // from here on, later text may still change what was found
  }

  parse() {
    let position = 0;
    while (position < this.text.length) {
      const found = at(SPECIAL, this.text, position);
      const next = found ? found.index : this.text.length;
      if (next > position) this.add({ kind: "text", text: this.text.slice(position, next) }, position, next);
      position = next < this.text.length ? this.special(next) : next;
    }
    for (const run of matchRuns(this.runs)) this.isOpenFrom(run.start);
    for (const bracket of this.brackets) this.isOpenFrom(bracket.start);
    return nested(this.items);
  }

  add(item, start, end) {
    this.items.push(Object.assign(item, { start, end }));
    return end;
  }

  addText(text, start, end) {
    return this.add({ kind: "text", text }, start, end);
  }

  isOpenFrom(position) {
    this.openFrom = Math.min(this.openFrom, position);
  }

  // Takes what begins at a special character. Returns where it ends.
  special(start) {
    const mark = this.text[start];
    if (mark === "\\") return this.escape(start);
    if (mark === "`") return this.code(start);
    if (mark === "[") return this.bracket(start, "[");
    if (mark === "!" && this.text[start + 1] === "[") return this.bracket(start, "![");
    if (mark === "]") return this.link(start);
    if (mark === "<") return this.pointed(start);
    if (mark === "&") return this.entity(start);
    if (mark === "h") return this.bareUrl(start);
    if (mark === "!") return this.addText(mark, start, start + 1);
    return this.run(start, mark);
  }

  escape(start) {
    const found = at(ESCAPE, this.text, start);
    if (found) return this.addText(found[1], start, start + 2);
    const isBreak = this.text[start + 1] === "\n"; // line breaks are kept, with or without a backslash
    return this.addText(isBreak ? "" : "\\", start, start + 1);
  }

  code(start) {
    const length = at(/`+/y, this.text, start)[0].length, end = this.closingTicks(start, length);
    if (end === undefined) {
      this.isOpenFrom(start);
      return this.addText("`".repeat(length), start, start + length);
    }
    let text = this.text.slice(start + length, end).replaceAll("\n", " ");
    if (text.startsWith(" ") && text.endsWith(" ") && text.trim()) text = text.slice(1, -1);
    return this.add({ kind: "code", text }, start, end + length);
  }

  // Where the next run of as many backticks begins.
  closingTicks(start, length) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        const places = this.ticks.get(run[0].length) ?? [];
        places.push(run.index);
        this.ticks.set(run[0].length, places);
      }
      for (const places of this.ticks.values()) places.reverse();
    }
    const places = this.ticks.get(length) ?? [];
    while (places.length && places.at(-1) <= start) places.pop();
    return places.at(-1);
  }

  bracket(start, mark) {
    const item = { kind: "text", text: mark };
    this.add(item, start, start + mark.length);
    this.brackets.push({ item, start, index: this.items.length, isImage: mark === "![" });
    return start + mark.length;
  }

  // At a "]".
  link(start) {
    const bracket = this.brackets.pop(), end = start + 1;
    if (!bracket) return this.addText("]", start, end);
    const target = at(TARGET, this.text, end), href = target && safeUrl(target[1] ?? target[2]);
    if (!href) {
      const mayCome = end === this.text.length || (!target && this.text[end] === "(" && this.text.length - end < TARGET_LENGTH);
      if (mayCome) this.isOpenFrom(bracket.start);
      return this.addText("]", start, end);
    }
    const inside = this.runs.findIndex((run) => run.start > bracket.start);
    matchRuns(inside < 0 ? [] : this.runs.splice(inside));
    const children = nested(this.items.splice(bracket.index));
    this.items.pop(); // the bracket itself
    if (!bracket.isImage) this.brackets = this.brackets.filter((one) => one.isImage); // no link is within another
    return this.add({ kind: bracket.isImage ? "image" : "link", href, children }, bracket.start, end + target[0].length);
  }

  pointed(start) {
    const line = at(BREAK, this.text, start);
    if (line) return this.add({ kind: "break" }, start, start + line[0].length);
    if (this.text.length - start < BREAK_LENGTH) this.isOpenFrom(start);
    const found = at(POINTED_URL, this.text, start), href = found && safeUrl(found[1]);
    if (!href) return this.addText("<", start, start + 1);
    const children = [{ kind: "text", text: found[1] }];
    return this.add({ kind: "link", href, children }, start, start + found[0].length);
  }

  entity(start) {
    const found = at(ENTITY, this.text, start);
    if (!found) return this.addText("&", start, start + 1);
    return this.addText(ENTITIES[found[1]], start, start + found[0].length);
  }

  bareUrl(start) {
    const url = withoutTrailing(at(BARE_URL, this.text, start)?.[0] ?? ""), href = url && safeUrl(url);
    if (!href) return this.addText("h", start, start + 1);
    return this.add({ kind: "link", href, children: [{ kind: "text", text: url }] }, start, start + url.length);
  }

  // A run of *, _ or ~, which may begin or end emphasis.
  run(start, mark) {
    let end = start + 1;
    while (this.text[end] === mark) end += 1;
    const before = characterBefore(this.text, start), after = characterAt(this.text, end);
    const opensHere = isFlanking(after, before), closesHere = isFlanking(before, after), isWord = mark === "_";
    const run = {
      kind: "run", mark, length: end - start, left: end - start, opens: [], closes: [],
      canOpen: opensHere && (!isWord || !closesHere || PUNCTUATION.test(before)),
      canClose: closesHere && (!isWord || !opensHere || PUNCTUATION.test(after)),
    };
    if (mark === "~" && run.length !== 2) return this.addText(mark.repeat(run.length), start, end);
    this.runs.push(run);
    return this.add(run, start, end);
  }
}

function characterAt(text, position) {
  return position < text.length ? String.fromCodePoint(text.codePointAt(position)) : " ";
}

function characterBefore(text, position) {
  if (!position) return " ";
  const isLow = (text.charCodeAt(position - 1) & 0xfc00) === 0xdc00;
  return text.slice(position - (isLow && position > 1 ? 2 : 1), position);
}

// Whether a run can go with the text on one of its sides, given the characters on this side and on the other.
function isFlanking(near, far) {
  return !/\s/.test(near) && (!PUNCTUATION.test(near) || /\s/.test(far) || PUNCTUATION.test(far));
}

function withoutTrailing(url) {
  let end = url.length, open = 0;
  for (const one of url) open += one === "(" ? 1 : one === ")" ? -1 : 0;
  for (; end; end -= 1) {
    const last = url[end - 1];
    if (last === ")" && open < 0) open += 1;
    else if (!"?!.,:;*_~'\"]".includes(last)) break;
  }
  return url.slice(0, end);
}

// Decides which runs open and close what, as CommonMark says ("process emphasis"). Returns those that may still open.
function matchRuns(runs) {
  const openers = [], floors = new Map(); // below a floor there is no opener for a closer of its kind
  for (const run of runs) {
    const kind = `${run.mark}${run.canOpen}${run.length % 3}`;
    while (run.canClose && run.left) {
      const floor = floors.get(kind) ?? -1;
      let i = openers.length - 1;
      while (i >= 0 && openers[i].start >= floor && !fits(openers[i], run)) i -= 1;
      if (i < 0 || openers[i].start < floor) {
        floors.set(kind, run.start);
        break;
      }
      const opener = openers[i], used = Math.min(2, opener.left, run.left);
      const name = run.mark === "~" ? "del" : used === 2 ? "strong" : "em";
      openers.length = i + 1; // what stands between them opens nothing any more
      opener.left -= used;
      run.left -= used;
      opener.opens.push(name);
      run.closes.push(name);
      if (!opener.left) openers.pop();
    }
    if (run.canOpen && run.left) openers.push(run);
  }
  return openers;
}

function fits(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  const isOdd = (opener.canClose || closer.canOpen) && (opener.length + closer.length) % 3 === 0;
  return !isOdd || (opener.length % 3 === 0 && closer.length % 3 === 0);
}

// Items as a tree: what runs enclose becomes the children of their nodes.
function nested(items) {
  const root = { children: [] }, path = [root];
  const add = (node) => path.at(-1).children.push(node);
  for (const item of items) {
    if (item.kind !== "run") {
      add(item);
      continue;
    }
    for (const _ of item.closes) path.pop().end = item.end;
    if (item.left) add({ kind: "text", text: item.mark.repeat(item.left), start: item.start, end: item.end });
    for (const kind of item.opens.reverse()) {
      const node = { kind, children: [], start: item.start };
      add(node);
      path.push(node);
    }
  }
  return root.children;
}

// The nodes of a text that may go on: `settled` those that no later text can change, `open` the others, which `rest` is
// the source of. The source is divided behind white space that is in no node but text, so that a run of * or _ that
// comes next has white space before it, like one at the beginning.
export function parse(text) {
  const parser = new Parser(text), nodes = parser.parse();
  let [end, count] = [0, 0];
  for (const [i, node] of nodes.entries()) {
    if (node.end > parser.openFrom) break;
    if (node.kind !== "text" || node.text.length !== node.end - node.start) continue;
    const space = /\s\S*$/.exec(node.text);
    if (space) [end, count] = [node.start + space.index + 1, i];
  }
  if (!end) return { settled: [], open: nodes, rest: text };
  const divided = nodes[count], split = end - divided.start;
  return {
    settled: [...nodes.slice(0, count), { kind: "text", text: divided.text.slice(0, split) }],
    open: [{ kind: "text", text: divided.text.slice(split) }, ...nodes.slice(count + 1)],
    rest: text.slice(end),
  };
}
