// A client in the manner of the protocol page's own interactive Node client: it starts `atomic` from the PATH, splits
// lines at LF alone, shows the text as it comes, and passes Ctrl+C on as an abort. It never ends by itself.
"use strict";
const { spawn } = require("node:child_process");
const { StringDecoder } = require("node:string_decoder");

const child = spawn("atomic", ["--mode", "rpc", "--no-session"], { stdio: ["pipe", "pipe", "inherit"] });
const say = (command) => child.stdin.write(`${JSON.stringify(command)}\n`);

const decoder = new StringDecoder("utf8");
let open = "";
child.stdout.on("data", (bytes) => {
    const lines = (open + decoder.write(bytes)).split("\n");
    open = lines.pop();
    lines.map((line) => JSON.parse(line.replace(/\r$/, ""))).forEach(take);
});

function take(record) {
    if (record.type === "message_update" && record.assistantMessageEvent.type === "text_delta") {
        process.stdout.write(record.assistantMessageEvent.delta);
    }
    // Beyond the page's client: what the test waits for.
    if (record.type === "message_end" && record.message.role === "assistant") {
        process.stdout.write(`\n(${record.message.stopReason})\n`);
    }
    if (record.type === "response") process.stdout.write(`(${record.command}: ${record.success})\n`);
}

child.on("exit", (code) => process.exit(code ?? 1));
process.on("SIGINT", () => say({ type: "abort" }));
process.stdin.on("end", () => child.stdin.end()).resume();

say({ type: "prompt", message: "Hello" });
