// Text with inline markdown that is written into an element as it comes.

import { element } from "../dom.js";
import { parse } from "./inline.js";

const DEEPEST = 16; // elements within each other; what is deeper is shown without its own emphasis
const TAGS = { em: "em", strong: "strong", del: "del", code: "code" };

// Puts nodes of the parser into an element.
function put(parent, nodes, depth = 0, isLink = false) {
  for (const node of nodes) {
    if (node.kind === "text") putText(parent, node.text);
    else if (node.kind === "break") parent.append(element("br"));
    else if (node.kind === "code") parent.append(element("code", "", node.text));
    else if (depth >= DEEPEST) put(parent, node.children, depth, isLink);
    else put(parent.appendChild(elementOf(node, isLink)), node.children, depth + 1, isLink || Boolean(node.href));
  }
}

function putText(parent, text) {
  if (!text) return;
  if (parent.lastChild?.nodeType === Node.TEXT_NODE) parent.lastChild.appendData(text);
  else parent.append(text);
}

// An image becomes a link to it: showing it would tell another server who reads what. No link is within another.
function elementOf(node, isLink) {
  if (!node.href || isLink) return element(TAGS[node.kind] ?? "span");
  const link = element("a", node.kind === "image" ? "image" : "");
  link.href = node.href;
  link.title = node.href;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  return link;
}

// What has been written and cannot change any more stays; only what later text may still change is made anew. So a
// token costs what the last words cost, or at most the text that the writer got.
export class Writer {
  constructor(parent) {
    this.parent = parent;
    this.open = []; // nodes at the parent's end
    this.rest = ""; // their source
  }

  write(text) {
    const { settled, open, rest } = parse(this.rest + text), made = document.createDocumentFragment();
    for (const node of this.open) node.remove();
    put(this.parent, settled);
    put(made, open);
    this.open = [...made.childNodes];
    this.parent.append(made);
    this.rest = rest;
  }
}
