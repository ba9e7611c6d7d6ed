// A block of code, with a button that copies it.

import { copyButton } from "../copy.js";
import { element } from "../dom.js";

const PART = 8192; // characters after which a line begins a new part; a browser lays out anew only the part that grows
const LONGEST_PART = 4 * PART; // a longer line is broken

export class Code {
  constructor(parent, language) {
    const block = parent.appendChild(element("div", "code")), head = block.appendChild(element("div", "head"));
    this.pre = element("pre");
    this.pre.tabIndex = 0; // so that the keyboard scrolls it
    head.append(element("span", "", language), copyButton(() => this.pre.textContent, "Copy the code"));
    block.append(this.pre);
    this.isEmpty = true;
    this.beginPart();
  }

  beginPart() {
    this.part = this.pre.appendChild(element("code")).appendChild(document.createTextNode(""));
  }

  beginLine() {
    if (!this.isEmpty) this.part.appendData("\n");
    this.isEmpty = false;
    if (this.part.length >= PART) this.beginPart();
  }

  write(text) {
    for (let from = 0; from < text.length;) {
      const room = LONGEST_PART - this.part.length;
      const some = text.slice(from, from + room);
      this.part.appendData(some);
      from += some.length;
      if (this.part.length >= LONGEST_PART) this.beginPart();
    }
  }
}
