// Drives our program through pi-acp, unchanged, the way an editor does: over the official SDK of its protocol.
//
//   node acp.mjs <path of atomic> <scenario>…
//
// The test that starts it plays the model; the facts stated here are its cues.

import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { ClientSideConnection, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import { drive, expect, expectSame, fact, Log, refusal, timed, within } from "./facts.mjs";

const [atomic, ...names] = process.argv.slice(2);
const cwd = process.cwd();
const text = (text) => [{ type: "text", text }];
const is = (kind, more = () => true) => (update) => update.sessionUpdate === kind && more(update);
/** The update that ends each turn: nothing runs and nothing waits. */
const idle = is("session_info_update", (update) => update._meta?.piAcp?.running === false);

/** One pi-acp and its editor. */
class Editor {
    updates = new Log();
    /** What the agent asks of the person, oldest first. */
    asked = new Log();

    constructor() {
        const entry = createRequire(import.meta.url).resolve("pi-acp");
        this.adapter = spawn(process.execPath, [entry], {
            stdio: ["pipe", "pipe", "inherit"],
            env: { ...process.env, PI_ACP_PI_COMMAND: atomic },
        });
        const stream = ndJsonStream(Writable.toWeb(this.adapter.stdin), Readable.toWeb(this.adapter.stdout));
        this.agent = new ClientSideConnection(() => this, stream);
    }

    async sessionUpdate({ sessionId, update }) {
        this.updates.push({ sessionId, ...update });
    }

    async requestPermission(request) {
        this.asked.push(request);
        return { outcome: { outcome: "selected", optionId: request.options[0].optionId } };
    }

    async open() {
        const { protocolVersion, agentInfo } = await within(
            "initialize",
            this.agent.initialize({ protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} }),
        );
        expectSame("the adapter", [agentInfo.name, agentInfo.version, protocolVersion], ["pi-acp", "0.0.34", 1]);
        return this;
    }

    /** Makes a session. The adapter goes on asking for a moment after its answer; the list of commands is the end of it. */
    async newSession() {
        const made = await within("session/new", this.agent.newSession({ cwd, mcpServers: [] }));
        this.commands = await this.updates.next("commands", is("available_commands_update"));
        return made;
    }

    prompt(sessionId, words) {
        return this.agent.prompt({ sessionId, prompt: text(words) });
    }

    /** Prompts, and gives how the turn ended and its updates. */
    async turn(sessionId, words) {
        this.updates.rest();
        const { stopReason } = await within(`the turn ${words}`, this.prompt(sessionId, words));
        return { stopReason, updates: await this.updates.until("the turn's end", idle) };
    }

    /** Ends the adapter as an editor does; gives how long that takes. */
    async close() {
        const gone = new Promise((resolve) => this.adapter.once("exit", resolve));
        const { ms, value } = await timed(() => {
            this.adapter.stdin.end();
            return within("the adapter's end", gone);
        });
        expectSame("the adapter's exit code", value, 0);
        return ms;
    }
}

const said = (updates, kind = "agent_message_chunk") =>
    updates.filter(is(kind)).map((update) => update.content.text).join("");

const scenarios = {
    async asking(editor) {
        const made = await timed(() => editor.newSession());
        const { sessionId, models, modes, configOptions } = made.value;
        fact("session", { sessionId, ms: made.ms });
        expectSame("the model", models.currentModelId, "mock/mock-model");
        expectSame("models", models.availableModels.map((model) => model.modelId), ["mock/mock-model", "mock/mock-plain"]);
        expect("the level is one of those offered", modes.availableModes.some((mode) => mode.id === modes.currentModeId), modes);
        expectSame("options", configOptions.map((option) => option.id), ["model", "thought_level"]);
        const { availableCommands } = editor.commands;
        expect("commands", availableCommands.some((command) => command.name === "compact"), availableCommands);

        const { stopReason, updates } = await editor.turn(sessionId, "Hello!");
        expectSame("how it ended", stopReason, "end_turn");
        expectSame("thoughts", said(updates, "agent_thought_chunk"), "Hm.");
        expectSame("words", said(updates), "Hello there");
        const usage = updates.find(is("usage_update"));
        expectSame("usage", [usage?.used, usage?.size], [15, 200000]);
        return sessionId;
    },

    async tools(editor) {
        const { sessionId } = await editor.newSession();
        writeFileSync("poem.txt", "Roses are red.\n");
        const { stopReason, updates } = await editor.turn(sessionId, "Improve the poem.");
        expectSame("how it ended", stopReason, "end_turn");
        const calls = updates.filter(is("tool_call"));
        expectSame("calls", calls.map((call) => [call.toolCallId, call.kind]), [
            ["c1", "execute"], ["c2", "edit"], ["c3", "edit"], ["c4", "read"],
        ]);
        const progress = (id) => updates.filter(is("tool_call_update", (update) => update.toolCallId === id));
        for (const { toolCallId } of calls) {
            const statuses = progress(toolCallId).map((update) => update.status);
            expectSame(`${toolCallId} ends`, statuses.at(-1), "completed");
            expect(`${toolCallId} was seen to run`, statuses.includes("in_progress"), statuses);
        }
        const end = (id) => progress(id).at(-1);
        expectSame("c1's exit", end("c1")._meta.terminal_exit.exit_code, 0);
        const output = progress("c1").map((update) => update._meta?.terminal_output?.data ?? "").join("");
        expectSame("c1's output", output, "wc says 1\n");
        // The adapter itself reads the file before and after the tool.
        expectSame("c2's diff", end("c2").content, [
            { type: "diff", path: "poem.txt", oldText: "Roses are red.\n", newText: "Roses are blue.\n" },
        ]);
        expectSame("c3's diff", end("c3").content, [
            { type: "diff", path: "new.txt", oldText: null, newText: "Violets\n" },
        ]);
        expectSame("c4's text", end("c4").content[0].content.text, "Violets\n");
        expectSame("the files", [readFileSync("poem.txt", "utf8"), readFileSync("new.txt", "utf8")], ["Roses are blue.\n", "Violets\n"]);
    },

    async cancelling(editor) {
        const { sessionId } = await editor.newSession();
        editor.updates.rest();
        const turn = editor.prompt(sessionId, "Count to a million.");
        await editor.updates.next("the first words", is("agent_message_chunk", (update) => update.content.text === "one"));
        const { ms, value } = await timed(async () => {
            await editor.agent.cancel({ sessionId });
            return within("the cancelled turn", turn);
        });
        expectSame("how it ended", value.stopReason, "cancelled");
        fact("cancelled", { ms });
        const { stopReason, updates } = await editor.turn(sessionId, "Say goodbye.");
        expectSame("and goes on", [stopReason, said(updates)], ["end_turn", "Bye."]);
    },

    async failing(editor) {
        const { sessionId } = await editor.newSession();
        const failed = await editor.turn(sessionId, "This goes wrong.");
        expectSame("a failed turn ends", failed.stopReason, "end_turn");
        const good = await editor.turn(sessionId, "This does not.");
        expectSame("and the next one works", [good.stopReason, said(good.updates)], ["end_turn", "Fine."]);
    },

    async switching(editor) {
        const { sessionId } = await editor.newSession();
        editor.updates.rest();
        const option = { sessionId, configId: "model", value: "mock/mock-plain" };
        await within("the other model", editor.agent.setSessionConfigOption(option));
        const update = await editor.updates.next("the options", is("config_option_update"));
        const value = (id) => update.configOptions.find((option) => option.id === id).currentValue;
        expectSame("model and level", [value("model"), value("thought_level")], ["mock/mock-plain", "off"]);
        await within("the first model", editor.agent.setSessionConfigOption({ ...option, value: "mock/mock-model" }));
        await within("set_mode", editor.agent.setSessionMode({ sessionId, modeId: "high" }));
        const mode = await editor.updates.next("the mode", is("current_mode_update", (update) => update.currentModeId === "high"));
        expectSame("the mode", mode.currentModeId, "high");
        await refusal("an unknown model", editor.agent.setSessionConfigOption({ ...option, value: "mock/none" }));
        const named = await within("/name", editor.prompt(sessionId, "/name Tea"));
        expectSame("its own command", named.stopReason, "end_turn");
        const { updates } = await editor.turn(sessionId, "Which model are you?");
        expectSame("words", said(updates), "The first.");
    },

    async loading(editor) {
        const { sessionId } = await editor.newSession();
        await editor.turn(sessionId, "Remember tea.");
        fact("first life over", { ms: await editor.close() });

        const second = await new Editor().open();
        const list = await within("session/list", second.agent.listSessions({ cwd }));
        const listed = list.sessions.find((session) => session.sessionId === sessionId);
        expect("the session is listed", listed !== undefined, list);
        const loaded = await within("session/load", second.agent.loadSession({ sessionId, cwd, mcpServers: [] }));
        expectSame("its model", loaded.models.currentModelId, "mock/mock-model");
        const replay = second.updates.rest();
        expectSame("it was told", said(replay, "user_message_chunk"), "Remember tea.");
        expectSame("it said", said(replay), "Tea it is.");
        const ran = replay.filter(is("tool_call"));
        expectSame("it ran", ran.map((call) => [call.toolCallId, call.status]), [["c1", "completed"]]);
        const { updates } = await second.turn(sessionId, "What was it?");
        expectSame("it knows", said(updates), "Tea.");

        // A session that was never asked anything has no file; loading it again is still that session.
        const fresh = await second.newSession();
        await within("loading a fresh one", second.agent.loadSession({ sessionId: fresh.sessionId, cwd, mcpServers: [] }));
        const { stopReason } = await second.turn(fresh.sessionId, "Are you there?");
        expectSame("it works", stopReason, "end_turn");

        await within("session/delete", second.agent.deleteSession({ sessionId }));
        const left = await within("session/list", second.agent.listSessions({ cwd }));
        expectSame("it is gone", left.sessions.some((session) => session.sessionId === sessionId), false);
        return second;
    },

    // From here on: commands that came later than the rest.

    async compacting(editor) {
        const { sessionId } = await editor.newSession();
        await editor.turn(sessionId, "Tell me a lot.");
        await editor.turn(sessionId, "And now?");
        editor.updates.rest();
        const compacted = await within("/compact", editor.prompt(sessionId, "/compact Keep the beginning."));
        expectSame("how it ended", compacted.stopReason, "end_turn");
        const report = await editor.updates.next("its report", is("agent_message_chunk"));
        expect("it reports", report.content.text.startsWith("Compaction completed."), report);
        await within("/autocompact", editor.prompt(sessionId, "/autocompact off"));
        const off = await editor.updates.next("its report", is("agent_message_chunk"));
        expectSame("it says", off.content.text, "Auto-compaction disabled.");
    },

    async dialogs(editor) {
        const { sessionId } = await editor.newSession();
        const { stopReason, updates } = await editor.turn(sessionId, "Hello.");
        const asked = await editor.asked.next("a question", () => true);
        expectSame("the question", [asked.toolCall.title, asked.toolCall.rawInput.message], ["Go on?", "This asks the model."]);
        // A notice is answered by the adapter as if it were a question; that has to be ignored.
        expectSame("the turn", [stopReason, said(updates)], ["end_turn", "Going on.Hello."]);
    },

    async exporting(editor) {
        const { sessionId } = await editor.newSession();
        await editor.turn(sessionId, "Something to read.");
        editor.updates.rest();
        await within("/export", editor.prompt(sessionId, "/export"));
        const link = await editor.updates.next("a link", is("agent_message_chunk", (update) => update.content.type === "resource_link"));
        fact("exported", { path: new URL(link.content.uri).pathname });
    },
};

await drive(async () => {
    let editor = await new Editor().open();
    for (const name of names) {
        const other = await scenarios[name](editor);
        if (other instanceof Editor) editor = other;
        fact("done", { scenario: name });
    }
    fact("closed", { ms: await editor.close() });
});
