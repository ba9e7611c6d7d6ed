// Figures that are drawn: parts of a whole, and numbers over time.

import { byId, element, shape } from "./dom.js";
import { number } from "./numbers.js";

// Parts of a whole: a bar, and what its colours mean. Parts are [name, count, class].
export function drawParts(id, parts, whole) {
  const bar = byId(id), legend = byId(`${id}-legend`);
  bar.replaceChildren(...parts.filter(([, count]) => count > 0).map(([, count, kind]) => {
    const piece = element("i", kind);
    piece.style.width = `${(100 * count) / Math.max(whole, 1)}%`;
    return piece;
  }));
  drawLegend(legend, parts.map(([name, count, kind]) => [`${name} ${count.toLocaleString("en")}`, kind]));
}

export function drawLegend(legend, entries) {
  legend.replaceChildren(...entries.map(([text, kind]) => {
    const item = element("li");
    item.append(element("i", kind), text);
    return item;
  }));
}

// What was seen in the last two minutes, a value a second; null where nothing happened.
export class Series {
  constructor(id, span = 120) {
    this.svg = byId(`${id}-chart`);
    this.now = byId(`${id}-now`);
    this.span = span;
    this.values = [];
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > this.span) this.values.shift();
    this.draw();
  }

  draw() {
    const [width, height, left, bottom] = [this.svg.clientWidth || 240, 84, 34, 14];
    const known = this.values.filter((value) => value !== null);
    const top = nice(Math.max(...known, 0));
    const x = (i) => left + ((width - left) * (i + this.span - this.values.length)) / (this.span - 1);
    const y = (value) => 6 + (height - bottom - 6) * (1 - value / top);
    const parts = [0, top / 2, top].flatMap((value) => [
      shape("line", { x1: left, x2: width, y1: y(value), y2: y(value), class: "axis" }),
      shape("text", { x: left - 4, y: y(value) + 3, "text-anchor": "end" }, number(value)),
    ]);
    parts.push(shape("text", { x: left, y: height }, "2 min ago"));
    parts.push(shape("text", { x: width, y: height, "text-anchor": "end" }, "now"));
    let path = "", pen = "M";
    this.values.forEach((value, i) => {
      if (value === null) { pen = "M"; return; }
      path += `${pen}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
      if (pen === "M") path += `h.01`; // a single value is a point
      pen = "L";
    });
    parts.push(shape("path", { d: path || "M0 0", class: "curve" }));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts);
    this.now.textContent = known.length ? `last ${number(known.at(-1))}` : "";
  }
}

// The end of an axis: 1, 2 or 5 times a power of ten.
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
