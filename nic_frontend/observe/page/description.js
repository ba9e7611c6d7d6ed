// The description of the API. Where the server wants a key, a link cannot send it: the page then fetches the description
// itself and shows it in a dialog.

import { byId, element } from "./dom.js";
import { note } from "./machine.js";
import { call, wantsKey } from "./server.js";

function folded(title, value) {
  const made = element("details");
  made.append(element("summary", "", title), element("pre", "", JSON.stringify(value, null, 2)));
  return made;
}

function operations(paths) {
  return Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).flatMap(([method, operation]) => [
    element("h2", "", `${method.toUpperCase()} ${path}`),
    element("p", "", operation.summary),
    ...(operation.requestBody ? [folded("request", operation.requestBody)] : []),
    folded("answers", operation.responses),
  ]));
}

async function showDescription() {
  const text = byId("api-text");
  if (!text.firstChild) {
    const json = await (await call("openapi.json")).text();
    const described = JSON.parse(json);
    const link = element("a", "", "openapi.json");
    link.href = URL.createObjectURL(new Blob([json], { type: "application/json" }));
    link.target = "_blank";
    text.append(link, ...operations(described.paths), folded("schemas", described.components.schemas));
  }
  byId("api").showModal();
}

byId("api-link").addEventListener("click", (event) => {
  if (!wantsKey() || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  showDescription().catch((error) => {
    if (error.status === 401) byId("key").focus();
    note(error.message, "bad");
  });
});
byId("api-close").addEventListener("click", () => byId("api").close());
