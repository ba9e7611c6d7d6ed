// The last steps of the scheduler on a line of time.

import { drawLegend } from "./charts.js";
import { byId, shape, show } from "./dom.js";
import { duration, middle } from "./numbers.js";

// Each step as a box from its begin to its end; what lies between two is the gap.
export function showSteps(all) {
  const steps = recent(all), svg = byId("steps");
  drawLegend(byId("steps-legend"), [
    ["decode", "k1"], ["prompts", "k2"], ["both", "k3"], ["gap over 5 % of a step", "kbad"],
  ]);
  if (!steps.length) return show("steps-note", "none yet");
  const [width, height] = [svg.clientWidth || 600, 46];
  const begin = steps[0].start_ns, end = steps.at(-1).start_ns + steps.at(-1).ns;
  const x = (ns) => (width * (ns - begin)) / Math.max(end - begin, 1);
  const usual = middle(steps.map((step) => step.ns));
  const boxes = steps.map((step) => {
    const kind = step.prompt_tokens ? (step.decoding ? "f3" : "f2") : "f1";
    const wide = Math.max(x(step.start_ns + step.ns) - x(step.start_ns) - 0.5, 0.5);
    const box = shape("rect", { x: x(step.start_ns), y: 4, width: wide, height: 24, rx: 1, class: kind });
    box.append(shape("title", {}, `step ${step.id}: ${duration(step.ns)}, ${step.decoding} sequences decode, `
      + `${step.prompt_tokens} prompt tokens`));
    return box;
  });
  const gaps = [];
  for (let i = 1; i < steps.length; i++) {
    const from = steps[i - 1].start_ns + steps[i - 1].ns, gap = Math.max(0, steps[i].start_ns - from);
    gaps.push(gap);
    if (gap > usual / 20) {
      boxes.push(shape("rect", { x: x(from), y: 30, width: Math.max(x(from + gap) - x(from), 1), height: 3, class: "fbad" }));
    }
  }
  boxes.push(shape("text", { x: 0, y: height }, `step ${steps[0].id}`));
  boxes.push(shape("text", { x: width, y: height, "text-anchor": "end" }, `step ${steps.at(-1).id}`));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...boxes);
  const between = gaps.length ? `, gap ${duration(middle(gaps))} (median), ${duration(Math.max(...gaps))} at most` : "";
  show("steps-note", `${steps.length} in ${duration(end - begin)}, step ${duration(usual)} (median)${between}`);
}

// The last steps without a pause in which there was nothing to do: from the last gap of 20 steps' time on.
function recent(steps) {
  const usual = middle(steps.map((step) => step.ns));
  let from = 0;
  for (let i = 1; i < steps.length; i++) {
    if (steps[i].start_ns - steps[i - 1].start_ns - steps[i - 1].ns > 20 * usual) from = i;
  }
  return steps.slice(from);
}
