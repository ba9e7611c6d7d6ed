// @anthropic-ai/sdk: messages, a tool, a stream.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.BLINK_URL, apiKey: "none" });
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "weather", description: "d", input_schema }];
const common = { model: "tiny", max_tokens: 500 };
const plain = await client.messages.create({ ...common, messages: [{ role: "user", content: "hi" }] });
assert.equal(plain.content.at(-1).text, "You said: hi");
const stream = client.messages.stream({ ...common, tools, messages: [{ role: "user", content: "Weather?" }] });
const final = await stream.finalMessage();
assert.equal(final.stop_reason, "tool_use");
assert.deepEqual(final.content.at(-1).input, { city: "Paris" });
process.chdir(new URL(".", import.meta.url).pathname);
console.log(`@anthropic-ai/sdk ${JSON.parse(readFileSync("node_modules/@anthropic-ai/sdk/package.json")).version}`);
