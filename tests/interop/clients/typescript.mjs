// Drives the agent through the TypeScript SDK's v2 client, and tells what it saw as one JSON array on standard output.
// usage: node typescript.mjs FOLDER CWD COMMAND...   (FOLDER/node_modules has the SDK; COMMAND starts the agent)
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [folder, cwd, command, ...args] = process.argv.slice(2);
const require = createRequire(join(resolve(folder), "package.json"));
const entry = require.resolve("@agentclientprotocol/sdk/experimental/v2/unstable");
const acp = await import(pathToFileURL(entry));

const seen = [];
let wake = () => {};

function saw(fact) {
  seen.push(fact);
  wake();
}

async function until(condition) {
  while (!condition()) await new Promise((done) => (wake = done));
}

const updates = (sessionId, kind) =>
  seen.filter((s) => s.update?.sessionUpdate === kind && (sessionId === null || s.sessionId === sessionId));

const idles = (sessionId) => updates(sessionId, "state_update").filter((s) => s.update.state === "idle").length;

async function agent(script) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const gone = new Promise((done) => child.on("exit", done));
  const connection = acp
    .client({ name: "interop" })
    .onNotification("session/update", ({ params }) => saw({ event: "update", ...params }))
    .onRequest("session/request_permission", ({ params }) => {
      saw({ event: "permission", params });
      const option = params.options.find((o) => o.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .connect(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
  const call = async (method, params) => {
    try {
      const result = await connection.agent.request(method, params);
      saw({ event: "result", method, result });
      return result;
    } catch (error) {
      saw({ event: "error", method, code: error.code, message: String(error.message), data: error.data });
      return null;
    }
  };
  await call("initialize", { protocolVersion: 2, info: { name: "interop", version: "1.0" }, capabilities: {} });
  await script(call, (method, params) => connection.agent.notify(method, params), child);
  child.kill("SIGKILL");
  await gone;
  connection.close();
}

const text = (content) => [{ type: "text", text: content }];
let sessionId;
let idleCount = 0;

const turnEnds = () => until(() => idles(sessionId) > idleCount).then(() => (idleCount = idles(sessionId)));

await agent(async (call, notify) => {
  sessionId = (await call("session/new", { cwd })).sessionId;
  const keyed = { sessionId, prompt: text("Say something"), idempotencyKey: "key-1" };
  await call("session/prompt", keyed);
  await turnEnds();
  await call("session/prompt", keyed);
  await call("session/prompt", { sessionId, prompt: text("Write a file") });
  await turnEnds();
  await call("session/prompt", { sessionId, prompt: text("Delegate") });
  await turnEnds();
  const chunks = updates(sessionId, "agent_message_chunk").length;
  await call("session/prompt", { sessionId, prompt: text("Long work") });
  await until(() => updates(sessionId, "agent_message_chunk").length > chunks);
  await notify("session/cancel", { sessionId });
  await turnEnds();
  await call("session/list", { cwd });
  await call("session/close", { sessionId });
  await call("session/prompt", { sessionId, prompt: text("Too late") });
});

await agent(async (call) => {
  await call("session/resume", { sessionId, cwd, replayFrom: { type: "start" } });
  await call("session/prompt", { sessionId, prompt: text("Say something"), idempotencyKey: "key-1" });
  const fork = (await call("session/fork", { sessionId, cwd })).sessionId;
  await call("session/list", {});
  await call("session/delete", { sessionId: fork });
  await call("session/list", {});
});

process.stdout.write(JSON.stringify(seen));
