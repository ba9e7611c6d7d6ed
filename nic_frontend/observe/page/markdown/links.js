// Which addresses the page links to.

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const LONGEST = 2000;

// An address that may stand in a link, or null: one with another scheme, such as javascript:, or without one.
export function safeUrl(text) {
  if (text.length > LONGEST || !URL.canParse(text)) return null;
  const url = new URL(text);
  return SCHEMES.has(url.protocol) ? url.href : null;
}
