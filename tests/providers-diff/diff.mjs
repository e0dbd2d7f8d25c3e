// Sends the same conversation through pi-ai and through atomic-providers and compares the requests, field by field.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { clampThinkingLevel, normalizeContext } from "@earendil-works/pi-ai";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");
const ask = process.env.ATOMIC_ASK ?? join(root, "target", "debug", "examples", "ask");
const catalog = JSON.parse(readFileSync(join(root, "daemon/providers/data/models.json"), "utf8")).providers;
const meant = readFileSync(join(root, "daemon/providers/DIFFERENCES.md"), "utf8");

/** What is asked of each API: a shipped model, and the variables that lead to the server. */
const CASES = [
  { api: "anthropic-messages", provider: "anthropic", model: "claude-opus-4-5", path: "", env: { ANTHROPIC_API_KEY: "k" } },
  { api: "openai-completions", provider: "groq", model: "openai/gpt-oss-120b", path: "/openai/v1", env: { GROQ_API_KEY: "k" } },
  { api: "openai-responses", provider: "openai", model: "gpt-5.1", path: "/v1", env: { OPENAI_API_KEY: "sk-k" } },
  { api: "azure-openai-responses", provider: "azure", model: "gpt-5.1", path: "/openai/v1", env: { AZURE_OPENAI_API_KEY: "k" } },
  { api: "google-generative-ai", provider: "google", model: "gemini-3.5-flash", path: "/v1beta", env: { GEMINI_API_KEY: "k" } },
  { api: "google-generative-ai", provider: "google", model: "gemini-2.5-flash", path: "/v1beta", env: { GEMINI_API_KEY: "k" } },
  { api: "google-vertex", provider: "google-vertex", model: "gemini-3.5-flash", path: "", env: { GOOGLE_CLOUD_API_KEY: "k" } },
  { api: "mistral-conversations", provider: "mistral", model: "mistral-medium-latest", path: "", env: { MISTRAL_API_KEY: "k" } },
  { api: "bedrock-converse-stream", provider: "amazon-bedrock", model: "us.anthropic.claude-opus-4-5-20251101-v1:0", path: "", env: { AWS_BEARER_TOKEN_BEDROCK: "k", AWS_REGION: "us-east-1", AWS_BEDROCK_FORCE_HTTP1: "1" } },
];

/** Two by two pixels. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR42mNocFAAIgYIBQAaDgOBdA+WSAAAAABJRU5ErkJggg==";

const SIGNATURES = {
  "anthropic-messages": "sig",
  "openai-completions": "reasoning",
  "azure-openai-responses": JSON.stringify({ id: "rs_1", type: "reasoning", summary: [], encrypted_content: "e" }),
  "openai-responses": JSON.stringify({ id: "rs_1", type: "reasoning", summary: [], encrypted_content: "e" }),
  "bedrock-converse-stream": "sig",
  "mistral-conversations": undefined,
};

function conversation({ api, provider, model }, id = (name) => name) {
  const usage = { input: 10, output: 5, cacheRead: 0, cacheWrite: 0, totalTokens: 15, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };
  const answer = (content, stopReason, more = {}) => ({ role: "assistant", api, provider, model, usage, stopReason, timestamp: 2, content, ...more });
  const call = (name, tool, args) => ({ type: "toolCall", id: name, name: tool, arguments: args });
  const signature = api in SIGNATURES ? SIGNATURES[api] : "c2ln";
  const ids = api.endsWith("responses") ? ["call_1|fc_1", "call_2|fc_2"] : ["abcdef121", "abcdef122"];
  return [
    { role: "user", content: [{ type: "text", text: "look" }, { type: "image", data: PNG, mimeType: "image/png" }], timestamp: 1 },
    answer([{ type: "thinking", thinking: "hm", ...(signature && { thinkingSignature: signature }) }, { type: "text", text: "I look." }, call(ids[0], "read", { path: "a" }), call(ids[1], "bash", { command: "ls" })], "toolUse"),
    { role: "toolResult", toolCallId: ids[0], toolName: "read", content: [{ type: "text", text: "l1" }, { type: "text", text: "l2" }], isError: false, timestamp: 3 },
    { role: "toolResult", toolCallId: ids[1], toolName: "bash", content: [{ type: "text", text: "no" }], isError: true, timestamp: 3 },
    answer([{ type: "text", text: "half" }], "aborted"),
    { role: "user", content: "again", timestamp: 4 },
    answer([{ type: "text", text: "other" }, call("toolu_01", "bash", { command: "pwd" })], "toolUse", { provider: "other", api: "other", model: "other" }),
    { role: "toolResult", toolCallId: "toolu_01", toolName: "bash", content: [], isError: false, timestamp: 5 },
    { role: "user", content: [{ type: "text", text: "end" }], timestamp: 6 },
  ];
}

const TOOLS = [
  { name: "read", description: "Reads", parameters: { type: "object", properties: { path: { type: "string" } }, required: ["path"] } },
  { name: "bash", description: "Runs", parameters: { type: "object", properties: { command: { type: "string" }, mode: { const: "x" } }, required: ["command"] } },
];

/** One request, answered with no. */
function capture() {
  return new Promise((ready) => {
    let seen;
    const request = new Promise((done) => { seen = done; });
    const server = createServer((req, res) => {
      const chunks = [];
      req.on("data", (chunk) => chunks.push(chunk));
      req.on("end", () => {
        const text = Buffer.concat(chunks).toString();
        res.writeHead(400, { "content-type": "application/json" }).end('{"error":{"message":"no"}}');
        seen({ path: req.url, headers: req.headers, body: text ? JSON.parse(text) : null });
      });
    });
    server.listen(0, "127.0.0.1", () => ready({ url: `http://127.0.0.1:${server.address().port}`, request, close: () => server.close() }));
  });
}

async function theirs(test, level) {
  const { url, request, close } = await capture();
  const row = catalog[test.provider].find((model) => model.id === test.model);
  const model = { ...row, provider: test.provider, baseUrl: url + test.path };
  const api = await import(`@earendil-works/pi-ai/api/${test.api}`);
  const context = normalizeContext({ systemPrompt: "Be good.", messages: conversation(test), tools: TOOLS });
  const env = { ...test.env };
  const options = { apiKey: Object.values(test.env)[0], sessionId: "session", maxRetries: 0, env };
  // As sessions do it.
  const clamped = clampThinkingLevel(model, level);
  if (clamped !== "off") options.reasoning = clamped;
  const stream = api.streamSimple(model, context, options);
  const said = (await stream.result()).errorMessage;
  const timeout = new Promise((_, fail) => setTimeout(() => fail(new Error(`pi-ai sent nothing for ${test.api}: ${said}`)), 2000));
  timeout.catch(() => {});
  const seen = await Promise.race([request, timeout]);
  close();
  return seen;
}

async function ours(test, level) {
  const { url, request, close } = await capture();
  const agentDir = mkdtempSync(join(tmpdir(), "providers-diff-"));
  writeFileSync(join(agentDir, "models.json"), JSON.stringify({ providers: { [test.provider]: { baseUrl: url + test.path } } }));
  const child = spawn(ask, [], { stdio: ["pipe", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (chunk) => { said += chunk; });
  child.stdin.end(JSON.stringify({ agentDir, env: test.env, provider: test.provider, model: test.model, thinking: level, system: "Be good.", messages: conversation(test), tools: TOOLS, sessionId: "session" }));
  await new Promise((done) => child.on("close", done));
  const nothing = new Promise((_, fail) => setTimeout(() => fail(new Error(`atomic sent nothing for ${test.api}: ${said}`)), 2000));
  nothing.catch(() => {});
  const seen = await Promise.race([request, nothing]);
  close();
  return seen;
}

function compare(path, a, b, out) {
  if (JSON.stringify(a) === JSON.stringify(b)) return;
  const object = (value) => value !== null && typeof value === "object";
  if (object(a) && object(b) && Array.isArray(a) === Array.isArray(b)) {
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) compare(Array.isArray(a) ? `${path}[${key}]` : `${path}.${key}`, a[key], b[key], out);
    return;
  }
  out.push([path, a, b]);
}

/** Headers that any HTTP client adds, and those that say who somebody is. */
const PLAIN = /^(host|connection|content-length|user-agent|accept.*|sec-fetch-mode|x-stainless.*|x-goog-api-client|transfer-encoding|amz-sdk.*|x-amz-user-agent|content-encoding|originator)$/;

function merged(messages) {
  const out = [];
  for (const message of messages) {
    const last = out.at(-1);
    if (last?.role === message.role) last.content.push(...message.content);
    else out.push({ ...message, content: [...message.content] });
  }
  return out;
}

/** Without the model's own line that ours has between the results of tools and a prompt; see DIFFERENCES.md. */
function unbridged(messages) {
  return messages.filter((message, at) => !(message.role === "assistant" && !message.tool_calls && messages[at - 1]?.role === "tool" && messages[at + 1]?.role === "user"));
}

/** The rows of the first table of DIFFERENCES.md, by API and path. */
const rows = new Set([...meant.matchAll(/^\| (\S+) \| `([^`]+)` \|/gm)].map((row) => `${row[1]} ${row[2]}`));
const seen = new Set();

const only = process.argv[2];
let unknown = 0;
for (const test of CASES) {
  if (only && only !== test.api) continue;
  for (const level of ["off", "minimal", "low", "medium", "high"]) {
    let their, our;
    try {
      [their, our] = [await theirs(test, level), await ours(test, level)];
    } catch (error) {
      console.log(`\n## ${test.api} (${test.model}, ${level})\nUNKNOWN ${error.message}`);
      unknown++;
      continue;
    }
    // Ours has one message for what one side says in a row; see DIFFERENCES.md.
    if (test.api === "bedrock-converse-stream") their.body.messages = merged(their.body.messages);
    if (test.api === "mistral-conversations") our.body.messages = unbridged(our.body.messages);
    const out = [];
    compare("path", their.path, our.path, out);
    const headers = (all) => Object.fromEntries(Object.entries(all).filter(([name]) => !PLAIN.test(name)));
    compare("headers", headers(their.headers), headers(our.headers), out);
    compare("body", their.body, our.body, out);
    console.log(`\n## ${test.api} (${test.model}, ${level})`);
    for (const [path, a, b] of out) {
      const general = path.replace(/\[\d+\]/g, "[]");
      const row = [`${test.api} ${general}`, `any ${general}`].find((row) => rows.has(row));
      const known = row !== undefined;
      if (known) seen.add(row);
      if (!known) unknown++;
      console.log(`${known ? "meant  " : "UNKNOWN"} ${path}\n    pi-ai:  ${JSON.stringify(a)}\n    atomic: ${JSON.stringify(b)}`);
    }
  }
}
const gone = only ? [] : [...rows].filter((row) => !seen.has(row));
for (const row of gone) console.log(`\nGONE    ${row}`);
console.log(`\n${unknown} differences that DIFFERENCES.md does not name, ${gone.length} that it names and that are not there`);
process.exitCode = unknown || gone.length ? 1 : 0;
