// Asks a server what programs with openai's package for Node ask, and prints what they see.
//
//     node check.mjs URL FOLDER      FOLDER has node_modules
import { createRequire } from "node:module";
const [url, folder] = process.argv.slice(2);
const require = createRequire(folder + "/");
const { OpenAI } = require("openai");
const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none" });
const messages = [{ role: "user", content: "Hello" }];
const say = (name, ...values) => console.log(name + ": " + JSON.stringify(values));
const weather = {
  type: "function",
  function: {
    name: "weather", description: "of a city",
    parameters: { type: "object", properties: { city: { type: "string", enum: ["Rome", "Oslo"] } }, required: ["city"] },
  },
};

const ids = [];
for await (const m of client.models.list()) ids.push(m.id);
say("models", ids);

let r = await client.chat.completions.create({ model: "tiny", messages });
say("chat", r.choices[0].message.content, r.choices[0].finish_reason, r.usage.total_tokens, r._request_id.startsWith("req_"));

let text = "", usage = null;
for await (const chunk of await client.chat.completions.create({ model: "tiny", messages, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
say("stream", text, usage.total_tokens);

const runner = client.chat.completions.stream({ model: "tiny", messages });
say("stream helper", await runner.finalContent());

r = await client.chat.completions.create({ model: "tools", messages, tools: [weather], tool_choice: { type: "function", function: { name: "weather" } }, max_tokens: 100 });
say("named call", r.choices[0].message.tool_calls[0].function.name, Object.keys(JSON.parse(r.choices[0].message.tool_calls[0].function.arguments)));

const calls = client.chat.completions.stream({ model: "scripted", messages, tools: [weather] });
const m = await calls.finalMessage();
say("streamed calls", m.content, m.tool_calls.map((c) => [c.function.name, c.function.arguments]));

r = await client.chat.completions.create({
  model: "tiny", messages,
  response_format: { type: "json_schema", json_schema: { name: "a", strict: true, schema: { type: "object", properties: { b: { type: "boolean" } }, required: ["b"], additionalProperties: false } } },
});
say("json schema", typeof JSON.parse(r.choices[0].message.content).b);

r = await client.completions.create({ model: "tiny", prompt: "Hello", max_tokens: 4 });
say("completion", r.choices[0].finish_reason, r.usage.completion_tokens);

r = await client.embeddings.create({ model: "vectors", input: ["Rome", "Oslo"] });
const floats = await client.embeddings.create({ model: "vectors", input: ["Rome", "Oslo"], encoding_format: "float" });
say("embeddings", r.data.map((d) => d.embedding.length), Math.abs(r.data[1].embedding[3] - floats.data[1].embedding[3]) < 1e-6);

async function fails(name, f) {
  try {
    await f();
    say(name, "no error");
  } catch (e) {
    say(name, e.constructor.name, e.status ?? null, e.code ?? null, e.param ?? null);
  }
}
await fails("no model", () => client.chat.completions.create({ model: "none", messages }));
await fails("unknown", () => client.chat.completions.create({ model: "tiny", messages, surprise: 1 }));
await fails("in the middle", async () => {
  for await (const _ of await client.chat.completions.create({ model: "broken", messages, stream: true }));
});
await fails("busy", () => client.chat.completions.create({ model: "busy", messages }, { maxRetries: 0 }));
r = await client.chat.completions.create({ model: "busy", messages });
say("retried", r.choices[0].message.content);

const controller = new AbortController();
const left = await client.chat.completions.create({ model: "tiny", messages, stream: true }, { signal: controller.signal });
for await (const _ of left) { controller.abort(); }
say("left", true);
