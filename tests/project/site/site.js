for (const entry of ENTRIES) entry[0] = entry[0].replace(/<[^>]*>/g, "");

// The search: of each entry the weights of its words, which count more where few entries have them.
let index;
const WEIGHTS = [[20, 10.5], [12, 8]]; // Of titles: of a guide and its headings, of a name and its methods.

function stem(word) {
    return word.length > 4 ? word.toLowerCase().replace(/(ations?|ates?|ings?|ed|es|s|e)$/, "") : word.toLowerCase();
}

// The words of a text, and the parts of names such as EarlyStopping and batch_size.
function partsOf(word) {
    return word.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g) || [];
}

function wordsOf(text) {
    return text.match(/[\p{L}\p{N}_]+/gu) || [];
}

function termsOf(text) {
    return wordsOf(text).flatMap((word) => [...new Set([word, ...partsOf(word)])].map(stem));
}

function makeIndex() {
    index = new Map();
    ENTRIES.forEach(([title, url, section, text], entry) => {
        text = text.replace(/<[^>]*>/g, " ");
        for (const [words, weight] of [[title, WEIGHTS[+url.startsWith("sbert.")][+/#.*\.|^(?!sbert\.).*#/.test(url)]], [section, 3], [text, 1]]) {
            const terms = termsOf(words);
            for (const term of terms) {
                if (!index.has(term)) index.set(term, new Map());
                const weights = index.get(term), most = (3 * weight) / Math.sqrt(3 + terms.length);
                weights.set(entry, (weights.get(entry) || 0) + Math.min(weight / Math.sqrt(3 + terms.length), most));
            }
        }
    });
}

// The best entries of a query: the sum over its words, each at its best term, for those that have most of the words.
function find(query) {
    if (!index) makeIndex();
    const words = wordsOf(query).flatMap((word) => (index.has(stem(word)) ? [stem(word)] : [word, ...partsOf(word)].map(stem)));
    const total = new Map(), matched = new Map();
    for (const word of words) {
        const best = new Map();
        for (const [term, weights] of index) {
            if (!term.startsWith(word)) continue;
            const factor = (term === word ? 1 : 0.3) * Math.log(1 + ENTRIES.length / weights.size);
            for (const [entry, weight] of weights) best.set(entry, Math.max(best.get(entry) || 0, factor * weight));
        }
        for (const [entry, weight] of best) {
            total.set(entry, (total.get(entry) || 0) + weight);
            matched.set(entry, (matched.get(entry) || 0) + 1);
        }
    }
    const score = (entry) => total.get(entry) * matched.get(entry) ** 2;
    return [...total.keys()].sort((a, b) => score(b) - score(a) || a - b).slice(0, 10).map((entry) => ENTRIES[entry]);
}

if (typeof document !== "undefined") {
    const input = document.querySelector("input[type=search]"), hits = document.querySelector("#hits");
    const show = () => hits.replaceChildren(...find(input.value).map(([title, url, section]) => {
        const item = document.createElement("li"), link = document.createElement("a"), where = document.createElement("small");
        link.href = url;
        where.textContent = " " + section;
        link.append(title, where);
        item.append(link);
        return item;
    }));
    input.addEventListener("input", show);
    input.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && hits.firstChild) location.href = hits.querySelector("a").href;
        if (event.key === "Escape") hits.replaceChildren();
    });
    document.addEventListener("click", (event) => event.target.closest(".search") || hits.replaceChildren());

    // The parts of a page stand below its entry in the menu.
    const entry = document.querySelector("nav [aria-current]"), parts = document.createElement("ul");
    for (const part of document.querySelectorAll("main > h1.name, main > h2[id], main .classattr")) {
        const item = document.createElement("li"), link = document.createElement("a");
        link.href = "#" + (part.id || part.textContent);
        link.textContent = part.matches(".classattr") ? part.id.split(".").pop() : part.textContent;
        item.append(link);
        parts.append(item);
    }
    const menu = document.querySelector("nav");
    if (parts.firstChild) entry.after(parts);
    menu.scrollTop = entry.offsetTop - 100;
    menu.addEventListener("click", () => (document.querySelector("#menu").checked = false));

    // What a block prints comes without colours; a name of the API leads to its page.
    for (const block of document.querySelectorAll("main .codehilite + .codehilite")) {
        block.classList.toggle("output", !block.querySelector("pre span:not(:empty)"));
    }
    const pages = new Map(ENTRIES.filter(([, url]) => /^sbert\..*\.html#\w+$/.test(url)).map(([title, url]) => [title, url]));
    for (const [, url] of ENTRIES.filter(([, url]) => /^[a-z_]+\.html$/.test(url))) pages.set("sbert." + url.slice(0, -5), url);
    for (const code of document.querySelectorAll("main :not(pre, a) > code")) {
        const url = pages.get(code.textContent) || pages.get(code.textContent.replace(/^sbert\.(\w+\.)*/, ""));
        if (!url) continue;
        const link = document.createElement("a");
        link.href = url;
        code.replaceWith(link);
        link.append(code);
    }
    for (const block of document.querySelectorAll("main .codehilite:not(.output)")) {
        const button = document.createElement("button"), lines = block.innerText.split("\n");
        button.textContent = "Copy";
        button.addEventListener("click", async () => {
            const prompts = lines.filter((line) => /^(>>>|\.\.\.)/.test(line)).map((line) => line.slice(4));
            await navigator.clipboard.writeText((prompts.length ? prompts : lines).join("\n").trim());
            button.textContent = "Copied";
            setTimeout(() => (button.textContent = "Copy"), 1500);
        });
        block.append(button);
    }
    for (const table of document.querySelectorAll("main table")) {
        const frame = document.createElement("div"), mark = () => frame.classList.toggle("cut", frame.scrollLeft + frame.clientWidth < frame.scrollWidth - 2);
        frame.className = "table";
        table.replaceWith(frame);
        frame.append(table);
        frame.addEventListener("scroll", mark);
        addEventListener("resize", mark);
        mark();
    }
}
