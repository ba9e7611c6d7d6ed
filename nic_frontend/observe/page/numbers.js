// Numbers and times as the page writes them.

// Three digits that count, with thousands apart.
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export function duration(ns) {
  if (ns >= 1e9) return `${number(ns / 1e9)} s`;
  if (ns >= 1e6) return `${number(ns / 1e6)} ms`;
  if (ns >= 1e3) return `${number(ns / 1e3)} µs`;
  return `${number(ns)} ns`;
}

export function middle(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
}
