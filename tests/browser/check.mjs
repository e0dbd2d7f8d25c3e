// Looks at exported pages in headless Chromium, without a network. See README.md beside this file.
//
//   node check.mjs [--shots DIR] [PAGE.html …]
//
// Without pages it makes three with the example of atomic-html-export: one to read, one that attacks, one of 10 000
// entries. Prints a line per check and ends with status 1 when one failed.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const MANY = 10_000;
// From the start of the navigation to load and first paint, the best of a few tries. On a machine that has more to do than
// processors, the clock says more about the others than about the page; there the processor time of the page counts.
const OPEN_WITHIN_MS = 1000;
const TRIES = 5;

const words = process.argv.slice(2);
const shotsAt = words.indexOf("--shots");
const shots = shotsAt >= 0 ? words.splice(shotsAt, 2)[1] : null;
if (shots) mkdirSync(shots, { recursive: true });

const executablePath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(
  (path) => path && existsSync(path),
);
if (!executablePath) {
  console.error("no Chromium found; install one or name it in CHROMIUM");
  process.exit(2);
}

let passed = 0;
let failed = 0;
const check = (what, holds, detail = "") => {
  if (holds) passed += 1;
  else failed += 1;
  console.log(`${holds ? "ok  " : "FAIL"} ${what}${detail === "" ? "" : ` (${detail})`}`);
};
const equal = (what, found, expected) =>
  check(what, JSON.stringify(found) === JSON.stringify(expected), JSON.stringify(found));

const scratch = mkdtempSync(join(tmpdir(), "atomic-page-"));
const made = (what) => {
  const out = join(scratch, `${what.replace(/^--/, "")}.html`);
  const example = ["run", "-q", "-p", "atomic-html-export", "--example", "page", "--", what, out];
  execFileSync("cargo", example, { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
  return out;
};

const browser = await chromium.launch({ executablePath, args: ARGUMENTS });

// A page whose every complaint, dialog and request is written down.
const open = async (file, options = {}) => {
  const { before: prepare, hash, ...rest } = options;
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...rest });
  const page = await context.newPage();
  const seen = { complaints: [], dialogs: [], requests: [] };
  page.on("console", (message) => seen.complaints.push(message.text()));
  page.on("pageerror", (error) => seen.complaints.push(error.message));
  page.on("dialog", (dialog) => {
    seen.dialogs.push(dialog.message());
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith("data:")) seen.requests.push(request.url());
  });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await context.route(/^(?!file:|data:)/, (route) => route.abort());
  const before = await prepare?.(page, context);
  await page.goto(pathToFileURL(file).href + (hash ?? ""));
  return { page, context, seen, before };
};

const quiet = async (what, { page, seen }, file) => {
  if (page.context().browser()) {
    const violations = await page.evaluate(() => window.violations ?? []).catch(() => []);
    equal(`${what}: no violation of the policy`, violations, []);
  }
  equal(`${what}: nothing on the console`, seen.complaints, []);
  equal(`${what}: no dialog`, seen.dialogs, []);
  equal(`${what}: one request, for the page`, [...new Set(seen.requests.map((url) => url.split("#")[0]))], [pathToFileURL(file).href]);
};

const shot = async (page, name, options = {}) => {
  if (shots) await page.screenshot({ path: join(shots, `${name}.png`), ...options });
};

// No part of the page is wider than the window: nothing has to be scrolled sideways but code.
const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);

const general = async (file) => {
  const name = file.split("/").pop().replace(/\.html$/, "");
  for (const [look, options] of [
    ["light", { colorScheme: "light" }],
    ["dark", { colorScheme: "dark" }],
    ["narrow", { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 }],
    ["without scripts", { javaScriptEnabled: false }],
  ]) {
    const here = await open(file, options);
    const what = `${name}, ${look}`;
    check(`${what}: fits the window`, look === "without scripts" || (await fits(here.page)));
    if (look === "without scripts") {
      check(`${what}: the conversation is there`, (await here.page.locator("main .entry").count()) > 0);
      check(`${what}: no button that does nothing`, !(await here.page.locator(".tools").isVisible()));
      equal(`${what}: nothing on the console`, here.seen.complaints.filter((text) => !/scripts? .*disabled|sandboxed/i.test(text)), []);
    } else await quiet(what, here, file);
    await shot(here.page, `${name}-${look.replaceAll(" ", "-")}`);
    await here.context.close();
  }
};

const readable = async (file) => {
  // Scripts off: branches and cards open by themselves, and an address opens what it names.
  const bare = await open(file, { javaScriptEnabled: false });
  const branch = bare.page.locator(".part > details.branch").first();
  await branch.locator("> summary").click();
  check("scripts off: a branch opens", await branch.locator(".entry").first().isVisible());
  await bare.page.locator("#entry-a000000b details.tool > summary").click();
  check("scripts off: a card opens", await bare.page.locator("#entry-a000000c pre").isVisible());
  await bare.page.locator("nav a[href='#entry-a0000010']").click();
  check("scripts off: the outline leads there", await bare.page.locator("#entry-a0000010").isVisible());
  await bare.context.close();

  const narrow = await open(file, { javaScriptEnabled: false, viewport: { width: 390, height: 844 } });
  check("narrow, scripts off: the outline is away", !(await narrow.page.locator("nav").isVisible()));
  await narrow.page.locator(".to-outline").click();
  check("narrow, scripts off: the outline comes", await narrow.page.locator("nav").isVisible());
  await shot(narrow.page, "demo-narrow-outline");
  await narrow.page.locator("nav a[href='#entry-a000001b']").click();
  check("narrow, scripts off: and goes", !(await narrow.page.locator("nav").isVisible()));
  await narrow.context.close();

  const here = await open(file, { permissions: ["clipboard-read", "clipboard-write"] });
  const { page } = here;
  const current = () => page.evaluate(() => document.querySelector(".current")?.id ?? null);
  const press = async (key) => {
    await page.keyboard.press(key);
    await page.waitForTimeout(30);
  };
  await press("j");
  equal("j: the first entry", await current(), "entry-a0000001");
  await press("J");
  equal("J: the first message of the user", await current(), "entry-a0000004");
  await press("j");
  await press("j");
  equal("j j: two entries on, results taken with their calls", await current(), "entry-a0000008");
  await press("k");
  equal("k: back", await current(), "entry-a0000005");
  await press("J");
  equal("J: over the closed branch", await current(), "entry-a0000010");
  equal("the outline follows", await page.locator("nav a[aria-current]").textContent(), "Widen it. And show me the chart of the differences.");
  await press("G");
  equal("G: the last", await current(), "entry-a000001e");
  await press("g");
  equal("g: the first", await current(), "entry-a0000001");
  await press("J");
  await press("j");
  await press("o");
  check("o: opens what the entry holds", await page.locator("#entry-a0000007 pre").isVisible());
  await shot(page, "demo-open-entry");
  await press("y");
  await page.waitForFunction(() => document.querySelector("#said.on"));
  equal("y: copies the link", await page.evaluate(() => navigator.clipboard.readText()), `${pathToFileURL(file).href}#entry-a0000005`);
  await page.locator("#entry-a0000008 > .anchor").click();
  await page.waitForTimeout(50);
  equal("a click on # copies the link", await page.evaluate(() => navigator.clipboard.readText()), `${pathToFileURL(file).href}#entry-a0000008`);

  await press("/");
  await page.keyboard.type("saturate");
  await page.waitForFunction(() => document.querySelector("#found").value !== "");
  equal("search: counts what was found", await page.locator("#found").textContent(), "3");
  await press("Enter");
  equal("search: Enter goes to the next from here", await current(), "entry-a000000d");
  await press("Enter");
  equal("search: into a closed branch, which opens", await current(), "entry-a000000e");
  check("search: what was found is in sight", await page.locator("#entry-a000000e").isVisible());
  check("search: and marked", await page.evaluate(() => CSS.highlights.get("found").size > 0));
  await shot(page, "demo-search");
  await press("Shift+Enter");
  equal("search: Shift+Enter goes back", await current(), "entry-a000000d");
  await page.locator("#search").fill("no such thing");
  await page.waitForFunction(() => document.querySelector("#found").value === "none");
  check("search: says when there is none", true);
  await press("Escape");
  equal("search: Escape ends it", await page.locator("#search").inputValue(), "");

  await press("e");
  check("e: expands all", (await page.locator("main details:not([open])").count()) === 0);
  await press("c");
  check("c: collapses all", (await page.locator("main details[open]").count()) === 0);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await ground();
  await press("t");
  check("t: changes the ground", (await ground()) !== before);
  await page.reload();
  check("t: is remembered", (await ground()) !== before);
  await press("?");
  check("?: shows the keys", await page.locator("#help").isVisible());
  await shot(page, "demo-keys");
  await press("Escape");
  check("Escape: closes them", !(await page.locator("#help").isVisible()));
  await quiet("demo, used", here, file);
  await here.context.close();

  const linked = await open(file, { hash: "#entry-a000000e" });
  check("an address of an entry in a branch opens the branch", await linked.page.locator("#entry-a000000e").isVisible());
  await linked.context.close();
};

const used = async (file) => {
  const here = await open(file);
  const { page } = here;
  // Everything is opened, hovered, clicked and focused: whatever could run has its chance.
  await page.evaluate(() => {
    for (const details of document.querySelectorAll("details")) details.open = true;
    for (const element of document.querySelectorAll("main *")) {
      element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
      if (element.tagName !== "A" && element.tagName !== "SUMMARY") element.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    }
  });
  await page.keyboard.press("/");
  await page.keyboard.type("alert");
  await page.waitForFunction(() => document.querySelector("#found").value !== "");
  await page.keyboard.press("Enter");
  await page.waitForTimeout(500);
  check("hostile: the page was not led away", page.url().startsWith(pathToFileURL(file).href));
  equal("hostile: one script", await page.locator("script").count(), 1);
  equal("hostile: no frame", page.frames().length, 1);
  await quiet("hostile, used", here, file);
  await here.context.close();
};

const fast = async (file) => {
  const times = [];
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const here = await open(file, { before: async (page, context) => {
      const session = await context.newCDPSession(page);
      await session.send("Performance.enable", { timeDomain: "threadTicks" });
      return session;
    } });
    const [loaded, painted] = await here.page.evaluate(async () => {
      const paint = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
      while (paint() === undefined) await new Promise((done) => requestAnimationFrame(done));
      return [performance.getEntriesByType("navigation")[0].loadEventEnd, paint()];
    });
    const { metrics } = await here.before.send("Performance.getMetrics");
    const worked = metrics.find((metric) => metric.name === "TaskDuration").value * 1000;
    times.push({ ms: Math.max(loaded, painted), loaded, painted, worked });
    if (attempt === 0) {
      const began = await here.page.evaluate(() => {
        const began = performance.now();
        document.querySelector("#search").value = "line 9995";
        document.querySelector("#search").dispatchEvent(new Event("input", { bubbles: true }));
        return began;
      });
      await here.page.waitForFunction(() => document.querySelector("#found").value !== "");
      const ended = await here.page.evaluate(() => performance.now());
      check("many: search finds the one", (await here.page.locator("#found").textContent()) === "1", `${Math.round(ended - began)} ms`);
      await here.page.keyboard.press("n");
      check("many: and goes there", await here.page.locator(`#entry-${(9995).toString(16).padStart(8, "0")}.current`).isVisible());
      await shot(here.page, "many");
    }
    await here.context.close();
  }
  times.sort((a, b) => a.ms - b.ms);
  const [best] = times;
  const size = (statSync(file).size / 1e6).toFixed(1);
  const busy = loadavg()[0] > cpus().length;
  const worked = Math.min(...times.map((time) => time.worked));
  const round = Math.round;
  check(
    `many: ${MANY} entries open within ${OPEN_WITHIN_MS} ms`,
    (busy ? worked : best.ms) < OPEN_WITHIN_MS,
    `${size} MB; best of ${TRIES}: loaded ${round(best.loaded)} ms, painted ${round(best.painted)} ms, ${round(worked)} ms of processor time; ` +
      `all: ${times.map((time) => round(time.ms)).join(", ")}${busy ? "; the machine was busy, so processor time counts" : ""}`,
  );
};

try {
  if (words.length > 0) for (const file of words) await general(resolve(file));
  else {
    const demo = made("--demo");
    await general(demo);
    await readable(demo);
    const hostile = made("--hostile");
    await general(hostile);
    await used(hostile);
    await fast(made(`--many=${MANY}`));
  }
} finally {
  await browser.close();
  rmSync(scratch, { recursive: true, force: true });
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
