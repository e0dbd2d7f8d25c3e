// Drives our program through the RpcClient class of a Pi package, unchanged.
//
//   node pi_rpc_client.mjs <package> <path of atomic> <scenario>…
//
// The test that starts it plays the model; the facts stated here are its cues.

import { drive, expect, expectSame, fact, Log, refusal, timed, within } from "./facts.mjs";

const [packageName, atomic, ...names] = process.argv.slice(2);
const { RpcClient } = await import(packageName);
/** The class grew between the versions: what is not there is not asked for. */
const has = (method) => typeof RpcClient.prototype[method] === "function";

/** The class starts `node <cliPath> …`: our own `node` comes first on its PATH and runs the program itself. */
const launcher = new URL("launcher", import.meta.url).pathname;

const isKind = (kind) => (event) => event.type === kind;
const isDelta = (text) => (event) =>
    event.type === "message_update" &&
    event.assistantMessageEvent.type === "text_delta" &&
    event.assistantMessageEvent.delta === text;
const settled = isKind("agent_settled");
const spoken = (message) =>
    message.content.map((block) => (block.type === "text" ? block.text : "")).join("");

const scenarios = {
    async asking({ client, events }) {
        const state = await client.getState();
        expectSame("the model", `${state.model.provider}/${state.model.id}`, "mock/mock-model");
        expectSame("isStreaming", state.isStreaming, false);
        expect("sessionFile is a path", state.sessionFile.endsWith(".jsonl"), state.sessionFile);

        const collected = await within("promptAndWait", client.promptAndWait("Hello!"));
        // The older class stops listening at agent_end, the newer one at agent_settled.
        const last = collected.at(-1).type;
        expect("the last event", ["agent_end", "agent_settled"].includes(last), last);
        const text = collected
            .filter((event) => event.assistantMessageEvent?.type === "text_delta")
            .map((event) => event.assistantMessageEvent.delta);
        expectSame("the deltas", text, ["Hello", " there"]);
        const end = collected.find(isKind("agent_end"));
        expectSame("the run's roles", end.messages.map((message) => message.role), ["user", "assistant"]);
        await events.next("agent_settled", settled);
        expectSame("the last text", await client.getLastAssistantText(), "Hello there");
        expectSame("roles", (await client.getMessages()).map((message) => message.role), ["user", "assistant"]);
        fact("asked", { endedBy: last });
    },

    async tools({ client, events }) {
        await client.prompt("Look around.");
        const start = await events.next("a tool that starts", isKind("tool_execution_start"));
        expectSame("the tool", [start.toolName, start.args], ["bash", { command: "echo seen" }]);
        const end = await events.next("a tool that ends", isKind("tool_execution_end"));
        expectSame("its result", [end.isError, end.result.content[0].text], [false, "seen\n"]);
        await events.next("agent_settled", settled);
        const stats = await client.getSessionStats();
        expectSame("tool calls", [stats.toolCalls, stats.toolResults], [1, 1]);
    },

    async steering({ client, events }) {
        const started = await client.prompt("Write a poem.");
        await events.next("the first words", isDelta("Roses"));
        const steered = await client.steer("Make it short.");
        const followed = await client.followUp("Now translate it.");
        if (has("clearQueue")) {
            expectSame("dispositions", [started, steered, followed], ["started", "queued", "queued"]);
        }
        expectSame("waiting messages", (await client.getState()).pendingMessageCount, 2);
        fact("queued");
        const run = await events.until("agent_settled", settled);
        expectSame("one run", run.filter(isKind("agent_end")).length, 1);
        const end = run.find(isKind("agent_end"));
        expectSame("its messages", end.messages.map(spoken), [
            "Write a poem.", "Roses.", "Make it short.", "Short.", "Now translate it.", "Kurz.",
        ]);
    },

    async aborting({ client, events }) {
        await client.prompt("Count to a million.");
        await events.next("the first words", isDelta("one"));
        if (has("clearQueue")) {
            await client.steer("Count faster.");
            await client.followUp("Count again.");
            const cleared = await client.clearQueue();
            expectSame("what was cleared", cleared, { steering: ["Count faster."], followUp: ["Count again."] });
        }
        await within("abort", client.abort());
        await events.next("agent_settled", settled);
        const messages = await client.getMessages();
        expectSame("the end", [messages.at(-1).stopReason, spoken(messages.at(-1))], ["aborted", "one"]);
        expectSame("isStreaming", (await client.getState()).isStreaming, false);
    },

    async bash({ client, events }) {
        const result = await client.bash("echo out; echo err >&2; exit 3");
        expectSame("exit code", [result.exitCode, result.cancelled, result.truncated], [3, false, false]);
        expectSame("output", result.output.split("\n").sort(), ["", "err", "out"]);
        const update = await events.next("a bash update", isKind("bash_execution_update"));
        expect("its text", ["out\n", "err\n"].includes(update.delta), update);
        events.rest();

        const running = client.bash("echo begun; sleep 1000");
        await events.next("the command's first output", isKind("bash_execution_update"));
        await within("abort_bash", client.abortBash());
        const cancelled = await within("the cancelled command", running);
        expectSame("cancelled", [cancelled.cancelled, cancelled.output], [true, "begun\n"]);
        const roles = (await client.getMessages()).map((message) => message.role);
        expectSame("bash messages", roles.slice(-2), ["bashExecution", "bashExecution"]);
    },

    async models({ client }) {
        const names = (await client.getAvailableModels()).map((model) => `${model.provider}/${model.id}`);
        expectSame("models", names.sort(), ["mock/mock-model", "mock/mock-plain"]);
        const plain = await client.setModel("mock", "mock-plain");
        expectSame("the new model", [plain.provider, plain.id], ["mock", "mock-plain"]);
        const state = await client.getState();
        expectSame("it does not think", [state.model.id, state.thinkingLevel], ["mock-plain", "off"]);
        expectSame("refused", await refusal("an unknown model", client.setModel("mock", "none")), "Model not found: mock/none");
        await client.setModel("mock", "mock-model");
        await client.setThinkingLevel("high");
        expectSame("thinking", (await client.getState()).thinkingLevel, "high");
        await client.setSteeringMode("all");
        await client.setFollowUpMode("all");
        await client.setAutoRetry(false);
        await client.abortRetry();
        const modes = await client.getState();
        expectSame("modes", [modes.steeringMode, modes.followUpMode], ["all", "all"]);
    },

    async entries({ client }) {
        if (!has("getEntries")) return;
        const all = await client.getEntries();
        expect("entries", all.entries.length > 0, all);
        expectSame("the leaf is the last", all.leafId, all.entries.at(-1).id);
        const first = all.entries[0].id;
        const rest = await client.getEntries(first);
        expectSame("entries since the first", rest.entries.length, all.entries.length - 1);
        expectSame("none since the last", (await client.getEntries(all.leafId)).entries, []);
        expectSame("refused", await refusal("an unknown entry", client.getEntries("nope")), "Entry not found: nope");
    },

    async sessions({ client }) {
        await client.setSessionName("Tea");
        const before = await client.getState();
        expectSame("name", before.sessionName, "Tea");
        expectSame("new_session", await client.newSession(before.sessionFile), { cancelled: false });
        const after = await client.getState();
        expect("another session", after.sessionId !== before.sessionId, after);
        expectSame("it is empty", [after.messageCount, after.sessionName], [0, undefined]);
    },

    // From here on: commands of the same class that came later than the rest.

    async levels({ client }) {
        if (has("getAvailableThinkingLevels")) {
            const levels = await client.getAvailableThinkingLevels();
            expect("levels", levels.includes("off") && levels.includes("high"), levels);
        }
        await client.setThinkingLevel("off");
        const level = await client.cycleThinkingLevel();
        expect("another level", typeof level.level === "string" && level.level !== "off", level);
        expectSame("it holds", (await client.getState()).thinkingLevel, level.level);
        const cycled = await client.cycleModel();
        expectSame("the next model", [cycled.model.id, cycled.isScoped], ["mock-plain", false]);
        expectSame("its level", cycled.thinkingLevel, "off");
        expectSame("no levels to cycle", await client.cycleThinkingLevel(), null);
        expectSame("and back", (await client.cycleModel()).model.id, "mock-model");
    },

    async branches({ client, events }) {
        await within("a first prompt", client.promptAndWait("First."));
        await events.next("agent_settled", settled);
        await within("a second prompt", client.promptAndWait("Second."));
        await events.next("agent_settled", settled);
        const origin = await client.getState();

        const users = await client.getForkMessages();
        expectSame("what can be forked", users.map((message) => message.text), ["First.", "Second."]);
        if (has("getTree")) {
            const { tree, leafId } = await client.getTree();
            expectSame("one root", tree.length, 1);
            let last = tree[0];
            while (last.children.length > 0) last = last.children.at(-1);
            expectSame("the leaf", last.entry.id, leafId);
        }

        expectSame("fork", await client.fork(users[1].entryId), { text: "Second.", cancelled: false });
        const forked = await client.getState();
        expect("a session of its own", forked.sessionFile !== origin.sessionFile, forked);
        const roles = async () => (await client.getMessages()).map((message) => message.role);
        expectSame("it ends before that message", await roles(), ["user", "assistant"]);
        expectSame("refused", await refusal("an unknown entry", client.fork("nope")), "Invalid entry ID for forking");

        expectSame("clone", await client.clone(), { cancelled: false });
        const cloned = await client.getState();
        expect("one more session", cloned.sessionFile !== forked.sessionFile, cloned);
        expectSame("with the same messages", await roles(), ["user", "assistant"]);

        expectSame("switch_session", await client.switchSession(origin.sessionFile), { cancelled: false });
        const back = await client.getState();
        expectSame("back again", [back.sessionId, back.messageCount], [origin.sessionId, 4]);
    },

    async compacting({ client, events }) {
        await client.setAutoCompaction(false);
        expectSame("automatic compaction", (await client.getState()).autoCompactionEnabled, false);
        const small = await refusal("compacting nothing", client.compact());
        expectSame("refused", small, "Nothing to compact (session too small)");
        await within("a long answer", client.promptAndWait("Tell me a lot."));
        await events.next("agent_settled", settled);
        await within("a short answer", client.promptAndWait("And now?"));
        await events.next("agent_settled", settled);
        const result = await within("compact", client.compact("Keep the beginning."));
        expect("it shrank", result.stats.linesDeleted > 0, result);
        expect("tokensBefore", result.tokensBefore > 0, result);
        const end = await events.next("compaction_end", isKind("compaction_end"));
        expectSame("why", [end.reason, end.aborted, end.willRetry], ["manual", false, false]);
        expectSame("the same result", end.result, result);
    },

    async exporting({ client, events }) {
        expectSame("commands", Array.isArray(await client.getCommands()), true);
        await within("a prompt", client.promptAndWait("Something to read."));
        await events.next("agent_settled", settled);
        const { path } = await client.exportHtml("page.html");
        expect("a page", path.endsWith("page.html"), path);
        fact("exported", { path });
    },
};

await drive(async () => {
    const client = new RpcClient({
        cliPath: atomic,
        cwd: process.cwd(),
        env: { PATH: `${launcher}:${process.env.PATH}` },
        provider: "mock",
        model: "mock-model",
        args: ["--no-themes"],
    });
    const events = new Log();
    client.onEvent((event) => events.push(event));

    // start() always waits a tenth of a second; a program that is quick answers before that.
    const first = await timed(async () => {
        const starting = client.start();
        const { ms } = await timed(() => within("the first answer", client.getState()));
        fact("first answer", { ms });
        await starting;
    });
    fact("started", { ms: first.ms });

    for (const name of names) {
        await scenarios[name]({ client, events });
        fact("done", { scenario: name });
    }

    const child = client.process;
    const { ms } = await timed(() => client.stop());
    // After one second the class kills, and that would show here.
    expectSame("how it ended", [child.exitCode, child.signalCode], [143, null]);
    expectSame("stderr", client.getStderr(), "");
    fact("stopped", { ms });
});
