// Buttons that copy a text.

import { element } from "./dom.js";

const TOLD_MS = 1500; // for which a button says that it has copied

// Browsers have navigator.clipboard only on pages that came over HTTPS or from this machine.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const had = document.activeElement, box = element("textarea", "offstage");
  box.value = text;
  document.body.append(box);
  box.select();
  const copied = document.execCommand("copy");
  box.remove();
  had?.focus();
  if (!copied) throw new Error("the browser does not copy");
  return undefined;
}

// A button that copies what `text` returns when it is pressed.
export function copyButton(text, label) {
  const button = element("button", "quiet copy", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", label);
  let told;
  const tell = (what) => {
    button.textContent = what;
    clearTimeout(told);
    told = setTimeout(() => { button.textContent = "Copy"; }, TOLD_MS);
  };
  button.addEventListener("click", () => copy(text()).then(() => tell("Copied"), () => tell("Not copied")));
  return button;
}
