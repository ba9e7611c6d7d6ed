// A table: the source of its rows, and its elements.

import { element } from "../dom.js";
import { Writer } from "./writer.js";

const MOST_COLUMNS = 64;

// The cells of a row's source. A pipe behind a backslash, or in code, does not divide.
export function cells(line) {
  const found = [""];
  for (const [part] of line.trim().replace(/^\|/, "").matchAll(/\\[^]|`[^`]*`|[^]/gu)) {
    if (part === "|") found.push("");
    else found[found.length - 1] += part === "\\|" ? "|" : part;
  }
  if (found.length > 1 && !found.at(-1).trim()) found.pop();
  return found.slice(0, MOST_COLUMNS).map((cell) => cell.trim());
}

// How columns are aligned, if the line is the one below a head of `count` columns; otherwise null.
export function alignments(line, count) {
  const found = cells(line);
  if (found.length !== count || !found.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return found.map((cell) => {
    if (cell.endsWith(":")) return cell.length > 1 && cell.startsWith(":") ? "middle" : "end";
    return "";
  });
}

export class Table {
  constructor(parent, head, columns) {
    this.columns = columns;
    const table = parent.appendChild(element("div", "wide")).appendChild(element("table"));
    table.appendChild(element("thead")).append(this.row(head, "th"));
    this.body = table.appendChild(element("tbody"));
  }

  row(texts, name) {
    const row = element("tr");
    for (const [i, text] of texts.slice(0, this.columns.length).entries()) {
      new Writer(row.appendChild(element(name, this.columns[i]))).write(text);
    }
    return row;
  }

  add(line) {
    this.body.append(this.row(cells(line), "td"));
  }
}
