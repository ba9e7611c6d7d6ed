// What a line of markdown is, as far as it can be told from the part of it that has come. It follows CommonMark, except
// that nothing is code because of its indentation, that `---` below a text is a rule, and that HTML is text.

import { alignments, cells } from "./table.js";

export const LONGEST_LINE = 4096; // a longer one is text, or code, and nothing else
const DEEPEST = 12; // quotes and lists within each other; marks of deeper ones are text

const RULE = /^(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const MAY_BE_RULE = /^(?:\*[* ]*|-[- ]*|_[_ ]*)$/;
const HEADING = /^(#{1,6})(?: (.*))?$/;
const MAY_BE_HEADING = /^#{1,6}(?: |$)/;
const FENCE = /^(?:(`{3,})([^`]*)|(~{3,})(.*))$/;
const MAY_BE_FENCE = /^(?:`{1,2}|`{3,}[^`]*|~{1,2}|~{3,}.*)$/;
const ITEM = /^([-*+]|(\d{1,9})([.)]))( +|$)/;
const MAY_BE_ITEM = /^(?:[-*+]|\d{1,9}[.)]?) *$/;
const MAY_BE_BELOW_HEAD = /^[-:| ]+$/;

function indentOf(text) {
  return text.length - text.trimStart().length;
}

// The line's place and kind: {kind, text, ...}, how many of the open containers it is `within`, and which it `opens`.
// `stage` is "part" while more of the line may come; null is returned where that has to be waited for. It is "whole" at
// the line's end, and "long" where no more is waited for. `open` says what stands open: `containers` from the outside
// to the inside, and `leaf`, the innermost block, or null.
//
// What has been told of a part holds for every longer part of the same line.
export function read(line, stage, open) {
  const [within, behind] = enter(line, open.containers);
  const isInside = within === open.containers.length, leaf = open.leaf;
  if (isInside && leaf?.kind === "code") return readCode(behind, stage, leaf, within);
  const opens = [];
  let text = behind, indent;
  for (;;) {
    indent = indentOf(text);
    text = text.slice(indent);
    if (!text && stage === "part") return null;
    if (!text && stage === "whole") return { kind: opens.length ? "nothing" : "blank", within, opens };
    const isInText = isInside && !opens.length && leaf?.kind === "text";
    const container = readContainer(text, indent, stage, isInText);
    if (container === null) return null;
    if (!container || within + opens.length >= DEEPEST) break;
    opens.push(container);
    text = text.slice(container.width);
    if (text.startsWith(" ") && container.kind === "quote") text = text.slice(1);
  }
  const block = readBlock(text, stage, isInside && !opens.length ? leaf : null);
  return block && { ...block, indent, within, opens };
}

// How many of the open containers the line continues, and what of it is behind their marks.
function enter(line, containers) {
  let text = line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
  for (const [i, container] of containers.entries()) {
    const indent = indentOf(text);
    if (container.kind === "quote") {
      if (text[indent] !== ">") return [i, text];
      text = text.slice(indent + (text[indent + 1] === " " ? 2 : 1));
    } else if (indent >= container.indent) {
      text = text.slice(container.indent);
    } else if (indent < text.length) {
      return [i, text];
    }
  }
  return [containers.length, text];
}

function readCode(text, stage, leaf, within) {
  const line = text.slice(Math.min(indentOf(text), leaf.indent)), rest = line.trim(), mark = leaf.fence[0];
  const isMarks = rest === mark.repeat(rest.length);
  if (isMarks && stage === "part") return null;
  const isEnd = isMarks && stage === "whole" && rest.length >= leaf.fence.length;
  return { kind: isEnd ? "end of code" : "code", text: line, within, opens: [] };
}

// A quote or list item that begins; undefined if none does, null if that cannot be told yet.
function readContainer(text, indent, stage, isInText) {
  if (text[0] === ">") return { kind: "quote", width: 1 };
  if (stage === "part" && (MAY_BE_ITEM.test(text) || MAY_BE_RULE.test(text))) return null;
  const found = !RULE.test(text) && ITEM.exec(text);
  if (!found) return undefined;
  const [, mark, start, sign, space] = found;
  if (isInText && (text === mark || (start && Number(start) !== 1))) return undefined; // a number at a line's begin
  const width = mark.length + (space.length > 4 ? 1 : space.length);
  const list = { tag: start ? "ol" : "ul", mark: sign ?? mark, start: Number(start ?? 1) };
  return { kind: "item", width, indent: indent + Math.max(width, mark.length + 1), list };
}

function readBlock(text, stage, leaf) {
  const mayBeBelowHead = leaf?.kind === "text" && leaf.head && MAY_BE_BELOW_HEAD.test(text);
  if (stage === "whole") {
    const columns = mayBeBelowHead && text.includes("-") && alignments(text, cells(leaf.head).length);
    return columns ? { kind: "table", head: cells(leaf.head), columns } : readWholeBlock(text, leaf);
  }
  const mayBeMore = mayBeBelowHead || leaf?.kind === "table" || text[0] === "|" || MAY_BE_RULE.test(text)
    || MAY_BE_HEADING.test(text) || MAY_BE_FENCE.test(text);
  return mayBeMore && stage === "part" ? null : { kind: "text", text };
}

function readWholeBlock(text, leaf) {
  if (leaf?.kind === "table" && text.includes("|")) return { kind: "row", text };
  if (RULE.test(text)) return { kind: "rule" };
  const heading = HEADING.exec(text);
  if (heading) return { kind: "heading", level: heading[1].length, text: withoutClosing((heading[2] ?? "").trim()) };
  const fence = FENCE.exec(text);
  if (fence) return { kind: "fence", fence: fence[1] ?? fence[3], language: (fence[2] ?? fence[4]).trim() };
  return { kind: "text", text };
}

// A heading's text without the marks with which it may end.
function withoutClosing(text) {
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  return !end || text[end - 1] === " " ? text.slice(0, end).trimEnd() : text;
}
