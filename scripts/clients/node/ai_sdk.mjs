// AI SDK: text, tools and objects, generated and streamed, through its OpenAI (responses, chats) and compatible providers.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = `${process.env.BLINK_URL}/v1`;
const openai = createOpenAI({ baseURL, apiKey: "none" });
const storing = createOpenAI({ baseURL: `${process.env.BLINK_STORING_URL}/v1`, apiKey: "none" });
const compatible = createOpenAICompatible({
  name: "blink", baseURL, includeUsage: true, supportsStructuredOutputs: true,
});
const weather = tool({
  description: "The weather in a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});
for (const model of [openai.chat("tiny"), openai.responses("tiny"), compatible("tiny")]) {
  const plain = await generateText({ model, prompt: "hi" });
  assert.equal(plain.text, "You said: hi");
  const providerOptions = { openai: { store: false } }; // it refers to stored responses otherwise
  const asked = { prompt: "Weather in Paris?", tools: { weather }, stopWhen: stepCountIs(3) };
  const options = { model, providerOptions, ...asked };
  const generated = await generateText(options);
  assert.equal(generated.text, "The tool says: rain in Paris");
  const streamed = streamText(options);
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.match(text, /The tool says: rain in Paris$/);
  assert((await streamed.totalUsage).outputTokens > 0);
  const schema = z.object({ name: z.string(), age: z.number().int(), kind: z.enum(["child", "adult"]) });
  const output = Output.object({ schema });
  schema.parse((await generateText({ model, output, prompt: "Who?" })).output);
  const forced = await generateText({ model, providerOptions, prompt: "x", tools: { weather }, toolChoice: "required" });
  assert.equal(forced.toolCalls[0].toolName, "weather");
  if (model.provider.startsWith("blink")) assert.equal(plain.reasoningText, "Hm.");
}
// Responses as the SDK asks for them by default, where they are stored: it refers to their items.
const asked = { model: storing.responses("tiny"), tools: { weather }, stopWhen: stepCountIs(3) };
const question = { role: "user", content: "Weather in Paris?" };
const again = { role: "user", content: "What did you think?" };
const loop = await generateText({ ...asked, messages: [question] });
assert.equal(loop.text, "The tool says: rain in Paris");
const thoughts = await generateText({ ...asked, messages: [question, ...loop.response.messages, again] });
assert.equal(thoughts.text, "I thought: I need a tool.");
const stream = streamText({ ...asked, messages: [question] });
assert.match(await stream.text, /The tool says: rain in Paris$/);
const previousResponseId = loop.providerMetadata.openai.responseId;
const continued = await generateText({
  ...asked, messages: [again], providerOptions: { openai: { previousResponseId } },
});
assert.equal(continued.text, "I thought: I need a tool.");
// Where they are not, it can keep the thoughts.
const keeping = { openai: { store: false, include: ["reasoning.encrypted_content"] } };
const unstored = { ...asked, model: openai.responses("tiny"), providerOptions: keeping };
const first = await generateText({ ...unstored, messages: [question] });
assert.equal(first.text, "The tool says: rain in Paris");
const kept = await generateText({ ...unstored, messages: [question, ...first.response.messages, again] });
assert.equal(kept.text, "I thought: I need a tool.");
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
process.chdir(new URL(".", import.meta.url).pathname);
console.log(["ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible"].map((name) => `${name} ${version(name)}`).join(", "));
