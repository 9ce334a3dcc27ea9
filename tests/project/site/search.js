// Search over entries.js: names first, then what a word stands for, then headings, then texts. Nothing leaves the page.
"use strict";
(() => {
  const root = document.currentScript.dataset.root;
  const input = document.querySelector("input[type=search]");
  const list = document.querySelector(".search ol");

  // "Normalising" and "normalizes" are one word, and so are "vector" and "vectors".
  const stem = (word) => (word.length > 4 ? word.replace(/(ations?|ing|ed|es|s|e)$/, "") : word.replace(/s$/, ""));
  const words = (text) => text.toLowerCase().replace(/(\w)is(e|ing|ation)/g, "$1iz$2").match(/[\p{L}\p{N}]+/gu) || [];
  const stems = (text) => words(text).map(stem);
  const starts = (known, wanted) => wanted.every((word) => known.some((other) => other.startsWith(word)));

  let ready;
  const prepare = () => {
    ready ??= ENTRIES.map((entry) => ({
      ...entry, title: stems(entry.name), body: stems(entry.text), plain: entry.name.toLowerCase(),
    }));
    return ready;
  };

  const score = (entry, query, wanted) => {
    const last = entry.plain.split(".").pop();
    if (entry.kind === "synonym") {
      if (entry.title.join(" ") === wanted.join(" ")) return 900;
      return wanted.join("").length > 2 && starts(entry.title, wanted) ? 300 : 0;
    }
    const name = entry.kind === "class" || entry.kind === "function" || entry.kind === "attribute";
    if (name && entry.plain === query) return 1000;
    if (name && last === query) return 950;
    if (name && query.length > 2 && last.startsWith(query)) return 600 - last.length;
    if (name && query.length > 2 && entry.plain.includes(query)) return 400 - entry.plain.length;
    if (starts(entry.title, wanted)) return name ? 250 : 320;
    if (starts([...entry.title, ...entry.body], wanted)) {
      const count = entry.body.filter((word) => word.startsWith(wanted[0])).length;
      return (name ? 50 : 100) + Math.min(count, 40);
    }
    return 0;
  };

  const find = (text) => {
    const query = text.trim().toLowerCase();
    const wanted = stems(query);
    if (!wanted.length) return [];
    const seen = new Set();
    return prepare()
      .map((entry) => [score(entry, query, wanted), entry])
      .filter(([points]) => points > 0)
      .sort((one, other) => other[0] - one[0])
      .map(([, entry]) => entry)
      .filter((entry) => !seen.has(entry.url) && seen.add(entry.url))
      .slice(0, 12);
  };

  const excerpt = (entry, query) => {
    const at = entry.text.toLowerCase().indexOf(words(query)[0]);
    return (at > 60 ? "… " + entry.text.slice(at - 40) : entry.text).slice(0, 140);
  };

  const show = () => {
    const results = find(input.value);
    list.replaceChildren(...results.map((entry, position) => {
      const item = document.createElement("li");
      const link = item.appendChild(document.createElement("a"));
      link.href = root + entry.url;
      link.textContent = entry.label;
      link.appendChild(document.createElement("small")).textContent = entry.page + " · " + excerpt(entry, input.value);
      item.setAttribute("aria-selected", position === 0);
      return item;
    }));
    if (!results.length) {
      const none = list.appendChild(document.createElement("li")).appendChild(document.createElement("p"));
      none.textContent = "Nothing has these words.";
    }
    list.hidden = !input.value.trim();
  };

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  input.addEventListener("keydown", (event) => {
    const items = [...list.querySelectorAll("li[aria-selected]")];
    const now = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
    if (event.key === "Escape") list.hidden = true;
    if (event.key === "Enter" && items.length) items[now].querySelector("a").click();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && items.length) {
      event.preventDefault();
      const next = (now + step + items.length) % items.length;
      items.forEach((item, position) => item.setAttribute("aria-selected", position === next));
      items[next].scrollIntoView({ block: "nearest" });
    }
  });
  document.addEventListener("click", (event) => { list.hidden = list.hidden || !event.target.closest(".search"); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement === document.body) { event.preventDefault(); input.focus(); }
  });

  // A wide page shows the list of pages; a narrow one opens it.
  const pages = document.querySelector("nav.pages details");
  const wide = matchMedia("(min-width: 60rem)");
  const open = () => { pages.open = wide.matches; };
  wide.addEventListener("change", open);
  open();
  document.querySelector("nav.pages [aria-current]")?.scrollIntoView({ block: "nearest" });

  // Code is copied without its prompts and its output.
  for (const block of document.querySelectorAll("main pre:not(.signature, .terminal)")) {
    const code = block.textContent;
    const lines = code.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4));
    const button = block.appendChild(document.createElement("button"));
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(lines.length ? lines.join("\n") : code);
      button.textContent = "Copied";
    });
  }
})();
