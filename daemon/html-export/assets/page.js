"use strict";
// The page reads without this script; it adds search, keys, the theme switch and copying of links. It runs nothing per
// entry when the page loads: all listeners sit on the document, and indexes are built when first asked for.
(() => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const THEME = "atomic-theme";
  root.classList.add("js");

  // Storage may be forbidden (files, private windows): then the choice lasts as long as the page.
  const stored = (value) => {
    try {
      if (value === undefined) return localStorage.getItem(THEME);
      localStorage.setItem(THEME, value);
    } catch {
      return null;
    }
  };
  const setTheme = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  };
  setTheme(stored());

  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  let saying = 0;
  const say = (text) => {
    const said = $("said");
    said.textContent = text;
    said.classList.add("on");
    clearTimeout(saying);
    saying = setTimeout(() => said.classList.remove("on"), 1600);
  };

  // Entries in the order of the page, those in closed branches left out unless asked for.
  const all = () => document.querySelectorAll("main .entry");
  const hiddenInBranch = (entry) => {
    const branch = entry.parentElement.closest("details.branch:not([open])");
    return branch !== null;
  };

  let current = null;
  const reveal = (element) => {
    for (let at = element.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  };
  const select = (entry, block = "start") => {
    if (!entry) return;
    if (current) current.classList.remove("current");
    current = entry;
    reveal(entry);
    entry.classList.add("current");
    entry.tabIndex = -1;
    entry.focus({ preventScroll: true });
    entry.scrollIntoView({ block });
    followOutline(entry);
  };

  // The first entry on screen, for keys pressed before any entry was chosen.
  const onScreen = () => {
    if (current) {
      const box = current.getBoundingClientRect();
      if (box.bottom > 0 && box.top < innerHeight) return current;
    }
    const main = document.querySelector("main").getBoundingClientRect();
    for (let y = 80; y < innerHeight; y += 24) {
      const entry = document.elementFromPoint(main.left + main.width / 2, y)?.closest?.(".entry");
      if (entry) return entry;
    }
    return null;
  };
  const move = (step, wanted) => {
    const entries = [...all()];
    const here = onScreen();
    let at = entries.indexOf(here);
    if (current !== here && step > 0 && at >= 0) at -= 1;
    for (at += step; at >= 0 && at < entries.length; at += step) {
      if (!hiddenInBranch(entries[at]) && (!wanted || entries[at].matches(wanted))) return select(entries[at]);
    }
  };

  // The outline's line for an entry is the last one whose target stands at or before it, in no branch that the entry is
  // outside of. Outline and page have the same order.
  let lines = null;
  let lit = null;
  const followOutline = (entry) => {
    lines ??= [...document.querySelectorAll("nav li > a")].map((link) => [document.getElementById(link.hash.slice(1)), link]);
    const before = (target) => target === entry || entry.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_PRECEDING;
    let [low, high] = [0, lines.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(lines[middle][0])) low = middle + 1;
      else high = middle;
    }
    const elsewhere = (target) => target.closest("details.branch")?.contains(entry) === false;
    while (low > 0 && elsewhere(lines[low - 1][0])) low -= 1;
    const link = low > 0 && lines[low - 1][1];
    if (!link || link === lit) return;
    lit?.removeAttribute("aria-current");
    lit = link;
    link.setAttribute("aria-current", "true");
    const nav = $("outline");
    const box = link.getBoundingClientRect();
    const frame = nav.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) nav.scrollTop += box.top - frame.top - frame.height / 3;
  };

  // Search: an entry is found when its text holds the words as typed, whatever their case.
  let texts = null;
  let found = [];
  let place = -1;
  const search = (query) => {
    query = query.trim().toLowerCase();
    found = [];
    place = -1;
    CSS.highlights?.delete("found");
    if (query) {
      texts ??= [...all()].map((entry) => [entry, entry.textContent.toLowerCase()]);
      for (const [entry, text] of texts) if (text.includes(query)) found.push(entry);
    }
    tell(query);
    return query;
  };
  const tell = (query) => {
    $("found").value = !query ? "" : found.length ? `${place < 0 ? found.length : `${place + 1} / ${found.length}`}` : "none";
  };
  const toFound = (step) => {
    if (!found.length) return;
    const query = $("search").value.trim().toLowerCase();
    if (place < 0) {
      // Begin where the reader is.
      const here = onScreen();
      const next = here ? found.findIndex((entry) => entry === here || here.compareDocumentPosition(entry) & 4) : 0;
      place = step > 0 ? Math.max(next, 0) : (next <= 0 ? found.length : next) - 1;
    } else {
      place = (place + step + found.length) % found.length;
    }
    const entry = found[place];
    const ranges = mark(entry, query);
    const typing = document.activeElement === $("search");
    select(entry);
    if (ranges.length) {
      reveal(ranges[0].startContainer);
      const box = ranges[0].getBoundingClientRect();
      if (box.top > innerHeight - 40 || box.top < 60) scrollBy(0, box.top - innerHeight / 3);
    }
    if (typing) $("search").focus({ preventScroll: true });
    tell(query);
  };
  // Marks what was found in one entry, without touching the document.
  const mark = (entry, query) => {
    const ranges = [];
    if (!CSS.highlights || !query) return ranges;
    const walker = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() && ranges.length < 2000) {
      const node = walker.currentNode;
      const text = node.data.toLowerCase();
      for (let at = text.indexOf(query); at >= 0; at = text.indexOf(query, at + query.length)) {
        const range = new Range();
        // Lower case may be longer than what was written; such a text is not marked.
        if (at + query.length > node.length) break;
        range.setStart(node, at);
        range.setEnd(node, at + query.length);
        ranges.push(range);
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
    return ranges;
  };

  const setAll = (open) => {
    const here = onScreen();
    for (const details of document.querySelectorAll("main details")) details.open = open;
    here?.scrollIntoView({ block: "start" });
    say(open ? "Everything expanded" : "Everything collapsed");
  };
  const toggle = () => {
    const entry = onScreen();
    if (!entry) return;
    const inside = entry.tagName === "DETAILS" ? [entry] : [...entry.querySelectorAll("details")];
    const open = !inside.some((details) => details.open);
    for (const details of inside) details.open = open;
  };

  const copyLink = async (id) => {
    const url = location.href.split("#")[0] + "#" + id;
    try {
      history.replaceState(null, "", "#" + id);
    } catch {
      // Some browsers forbid it to pages from files; the link is copied all the same.
    }
    try {
      await navigator.clipboard.writeText(url);
      say("Link copied");
    } catch {
      say("The link is in the address bar");
      location.hash = id;
    }
  };

  const actions = {
    expand: () => setAll(true),
    collapse: () => setAll(false),
    theme: () => {
      const theme = isDark() ? "light" : "dark";
      setTheme(theme);
      stored(theme);
    },
    help: () => $("help").showModal(),
  };
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    J: () => move(1, ".user"),
    K: () => move(-1, ".user"),
    g: () => select(document.querySelector("main .entry")),
    G: () => select([...all()].filter((entry) => !hiddenInBranch(entry)).pop()),
    o: toggle,
    e: actions.expand,
    c: actions.collapse,
    n: () => toFound(1),
    N: () => toFound(-1),
    t: actions.theme,
    y: () => {
      const entry = onScreen();
      if (entry) copyLink(entry.id);
    },
    "/": () => $("search").select(),
    "?": actions.help,
  };

  document.addEventListener("click", (event) => {
    const target = event.target.closest?.("[data-do], a.anchor");
    if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (target.dataset.do) return actions[target.dataset.do]?.();
    event.preventDefault();
    copyLink(target.hash.slice(1));
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    if (event.target === $("search")) {
      if (event.key === "Enter") toFound(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        $("search").value = "";
        search("");
        $("search").blur();
      } else return;
      event.preventDefault();
      return;
    }
    const key = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (!key || event.target.closest?.("input")) return;
    event.preventDefault();
    key();
  });
  let typing = 0;
  document.addEventListener("input", (event) => {
    if (event.target !== $("search")) return;
    clearTimeout(typing);
    typing = setTimeout(() => search($("search").value), 120);
  });
  // An address that names an entry in a closed branch or card opens it.
  const toAddress = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target || target.id === "outline" || target.id === "conversation") return;
    reveal(target);
    if (target.classList.contains("branch")) target.open = true;
    target.scrollIntoView({ block: "start" });
    const entry = target.closest(".entry");
    if (entry) {
      current?.classList.remove("current");
      current = entry;
      followOutline(entry);
    }
  };
  addEventListener("hashchange", toAddress);
  addEventListener("DOMContentLoaded", () => {
    if (location.hash) toAddress();
  });
  let scrolling = 0;
  addEventListener(
    "scroll",
    () => {
      cancelAnimationFrame(scrolling);
      scrolling = requestAnimationFrame(() => {
        const entry = onScreen();
        if (entry) followOutline(entry);
      });
    },
    { passive: true },
  );
})();
