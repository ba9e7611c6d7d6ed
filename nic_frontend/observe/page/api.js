// The description of the API. Where the server wants a key, a link cannot send it: the page then fetches the description
// itself and shows it in a dialog.

async function fetched(url) {
  const answer = await fetch(url, { headers: keyHeaders() });
  if (answer.status === 401) {
    askForKey();
    byId("key").focus();
  }
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  return answer.text();
}

async function showApi() {
  const text = byId("api-text");
  if (!text.firstChild) {
    const [page, json] = await Promise.all(["/docs", "/openapi.json"].map(fetched));
    const unstyled = page.replace(/<style>.*?<\/style>/s, ""); // this page's own style applies, and no other may
    const parsed = new DOMParser().parseFromString(unstyled, "text/html"); // runs nothing
    for (const link of parsed.querySelectorAll("a")) { // to the same as JSON
      link.href = URL.createObjectURL(new Blob([json], { type: "application/json" }));
      link.target = "_blank";
    }
    text.replaceChildren(...parsed.body.childNodes);
  }
  byId("api").showModal();
}

byId("api-link").addEventListener("click", (event) => {
  const needsKey = apiKey() || !byId("key-row").hidden;
  if (!needsKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  showApi().catch((error) => note(error.message, "bad"));
});
byId("api-close").addEventListener("click", () => byId("api").close());
