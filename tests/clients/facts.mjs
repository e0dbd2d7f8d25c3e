// How a driver talks to the test that started it: one JSON object a line on stdout, each with the name of a fact. The
// first expectation that is not met ends the driver with exit code 1 and one clear line on stderr.

import { isDeepStrictEqual } from "node:util";

/** How long any one thing may take, in milliseconds. */
const PATIENCE = 10_000;

class Unmet extends Error {}

/** States a fact. */
export function fact(name, fields = {}) {
    process.stdout.write(JSON.stringify({ fact: name, ...fields }) + "\n");
}

/** Fails the driver unless `condition` holds; `seen` is shown. */
export function expect(what, condition, seen) {
    if (!condition) throw new Unmet(`${what}; seen: ${JSON.stringify(seen)}`);
}

/** The same for two values that have to be equal as JSON; the order of keys does not matter. */
export function expectSame(what, seen, wanted) {
    expect(`${what} should be ${JSON.stringify(wanted)}`, isDeepStrictEqual(seen, wanted), seen);
}

/** Waits for a promise, but not for ever. */
export async function within(what, promise) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Unmet(`not within ${PATIENCE} ms: ${what}`)), PATIENCE);
    });
    try {
        return await Promise.race([promise, late]);
    } finally {
        clearTimeout(timer);
    }
}

/** The message of the error that a promise ends with. */
export async function refusal(what, promise) {
    const value = await within(what, promise.then((value) => ({ value }), (error) => error));
    expect(`${what} should be refused`, value instanceof Error, value);
    return value.message;
}

/** Milliseconds with one decimal that `action` takes, and what it gave. */
export async function timed(action) {
    const start = performance.now();
    const value = await action();
    return { ms: Math.round((performance.now() - start) * 10) / 10, value };
}

/** Things that arrive, in order, with a cursor behind what was looked at. */
export class Log {
    #all = [];
    #cursor = 0;
    #waiting = null;

    /** Takes a thing. */
    push(thing) {
        this.#all.push(thing);
        this.#waiting?.();
    }

    /** Waits for the next thing that `isIt`; the cursor moves behind it. */
    async next(what, isIt) {
        const until = await this.until(what, isIt);
        return until.at(-1);
    }

    /** The same; gives everything from the cursor up to it. */
    async until(what, isIt) {
        let from = this.#cursor;
        const found = async () => {
            for (;;) {
                for (; from < this.#all.length; from++) if (isIt(this.#all[from])) return from;
                await new Promise((resolve) => (this.#waiting = resolve));
            }
        };
        const index = await within(what, found()).catch((error) => {
            const since = this.#all.slice(this.#cursor).map((thing) => JSON.stringify(thing).slice(0, 300));
            throw error instanceof Unmet ? new Unmet(`${error.message}; since:\n${since.join("\n")}`) : error;
        });
        const things = this.#all.slice(this.#cursor, index + 1);
        this.#cursor = index + 1;
        return things;
    }

    /** Everything from the cursor on; the cursor moves to the end. */
    rest() {
        const things = this.#all.slice(this.#cursor);
        this.#cursor = this.#all.length;
        return things;
    }
}

/** Runs a driver and ends its process. */
export async function drive(body) {
    let code = 0;
    try {
        await body();
    } catch (error) {
        code = 1;
        console.error(error instanceof Unmet ? `UNMET: ${error.message}` : error);
    }
    // What was stated has to be out before the process ends.
    process.stdout.write("", () => process.exit(code));
}
