// What the page's buttons and keys do.

import { Chat } from "./chat.js";
import "./description.js";
import { byId, show } from "./dom.js";
import "./machine.js";

const PLACEHOLDER = byId("question").placeholder;

let chat; // the one that is shown

function begin() {
  chat?.answering?.abort(); // the server then cancels the request
  const begun = new Chat(() => begun === chat && showState());
  chat = begun;
  byId("messages").replaceChildren(chat.log);
  showState();
  byId("question").focus();
}

function showState() {
  const owed = !chat.answering && chat.owed[0];
  show("send", chat.answering ? "Stop" : "Send");
  byId("question").placeholder = owed ? `The result of ${owed.function.name} (Enter sends)` : PLACEHOLDER;
}

function showSettings() {
  const set = ["system", "tools"].filter((id) => byId(id).value.trim());
  show("settings-note", set.length ? `(set: ${set.join(", ")})` : "");
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const box = byId("question"), text = box.value.trim();
  box.focus();
  if (chat.answering) return chat.answering.abort();
  if (!text) return undefined;
  box.value = "";
  return chat.say(text);
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!chat.answering) byId("ask").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || byId("api").open || !chat.answering) return;
  event.preventDefault();
  chat.answering.abort();
});
byId("clear").addEventListener("click", begin);
for (const id of ["system", "tools"]) byId(id).addEventListener("input", showSettings);
showSettings(); // a browser may have kept them
begin();
