// openai (npm): chats, tools streamed and not, its runner of tools, responses.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.BLINK_URL}/v1`, apiKey: "none" });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "weather", description: "d", parameters } }];
const messages = [{ role: "user", content: "Weather in Paris?" }];
const model = "tiny";

const chat = await client.chat.completions.create({ model, messages: [{ role: "user", content: "hi" }] });
assert.equal(chat.choices[0].message.content, "You said: hi");
const called = await client.chat.completions.create({ model, messages, tools });
assert.equal(called.choices[0].finish_reason, "tool_calls");
const final = await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion();
assert.deepEqual(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments), { city: "Paris" });

const weather = ({ city }) => `rain in ${city}`;
const runnable = [{ type: "function", function: { ...tools[0].function, function: weather, parse: JSON.parse } }];
const runner = client.chat.completions.runTools({ model, messages, tools: runnable });
assert.equal(await runner.finalContent(), "The tool says: rain in Paris");

const stream = client.responses.stream({ model, input: "hi" });
const kinds = new Set();
for await (const event of stream) kinds.add(event.type);
assert.equal((await stream.finalResponse()).output_text, "You said: hi");
assert(kinds.has("response.completed"));
process.chdir(new URL(".", import.meta.url).pathname);
console.log(`openai ${JSON.parse(readFileSync("node_modules/openai/package.json")).version} (npm)`);
