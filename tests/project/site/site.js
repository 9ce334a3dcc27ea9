// Search as in render_site.find: the sum over the words of a query, each at its best term.
function find(query) {
    const words = (query.match(/[\p{L}\p{N}_]+/gu) || []).flatMap((word) => {
        const whole = stem(word.toLowerCase());
        return whole in INDEX.terms ? [whole] : (word.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g) || [word]).map((part) => stem(part.toLowerCase()));
    });
    const total = {}, matched = {};
    for (const word of words) {
        const best = {};
        for (const [term, entries] of Object.entries(INDEX.terms)) {
            if (!term.startsWith(word)) continue;
            const factor = term === word ? 1 : 0.3;
            for (const [entry, weight] of Object.entries(entries)) best[entry] = Math.max(best[entry] || 0, factor * weight);
        }
        for (const [entry, weight] of Object.entries(best)) {
            total[entry] = (total[entry] || 0) + weight;
            matched[entry] = (matched[entry] || 0) + 1;
        }
    }
    const score = (entry) => total[entry] * (matched[entry] / words.length) ** 2;
    return Object.keys(total).sort((a, b) => score(b) - score(a) || a - b).slice(0, 10).map((entry) => INDEX.entries[entry]);
}

function stem(word) {
    return word.length > 4 ? word.replace(/(ing|ings|ed|es|s|e)$/, "") : word;
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

    for (const block of document.querySelectorAll("main .codehilite")) {
        if (block.classList.contains("output")) continue;
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
