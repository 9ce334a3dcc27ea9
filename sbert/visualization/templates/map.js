"use strict";

// ------------------------------------------------------------------------------------------------------- data

const element = (id) => document.getElementById(id);
const create = (kind, values = {}, ...children) => {
  const made = Object.assign(document.createElement(kind), values);
  made.append(...children);
  return made;
};
const data = JSON.parse(element("data").textContent);
const numbers = (text, Kind) => new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const { texts, columns } = data;
const count = texts.length;
const points = Float32Array.from(numbers(data.points, Uint16Array), (x) => x / 32767.5 - 1);  // x, y of each text
// Topics from the coarsest level to the finest; peaks: the text at which a name stands, -1 for none.
const levels = data.levels.map(({ names, labels, peaks }) => ({ names, peaks, labels: numbers(labels, Int16Array) }));
const finest = levels.length ? levels[levels.length - 1].labels : new Int16Array(count).fill(-1);
for (const column of columns) if (column.kind !== "text") column.values = numbers(column.values, column.kind === "category" ? Int16Array : Float64Array);
// The nearest texts of each text by meaning, and their cosines in steps of 1/255.
const nearby = data.neighbours && { size: data.neighbours.size, rows: numbers(data.neighbours.rows, Uint32Array), cosines: numbers(data.neighbours.cosines, Uint8Array) };
const extent = [0, 1].map((axis) => points.reduce((most, value, i) => (i % 2 === axis ? Math.max(most, Math.abs(value)) : most), 1e-3));
const english = (number) => number.toLocaleString("en");

// In the order in which points are drawn, neighbours in the file are far apart, so that none lie on top as a block.
const order = new Uint32Array(count);
const common = (a, b) => (b ? common(b, a % b) : a);
let step = Math.max(1, Math.floor(count * 0.618));
while (common(step, count) > 1) step += 1;
for (let i = 0; i < count; i += 1) order[i] = (i * step) % count;

// A grid, so that only points close by are examined: those of a cell are inCell[starts[cell]] and on.
const side = Math.max(1, Math.floor(Math.sqrt(count / 2)));
const cell = (value) => Math.min(side - 1, Math.max(0, Math.floor((value + 1) / 2 * side)));
const cellOf = (i) => cell(points[2 * i + 1]) * side + cell(points[2 * i]);
const starts = new Uint32Array(side * side + 1);
const inCell = new Uint32Array(count);
for (let i = 0; i < count; i += 1) starts[cellOf(i) + 1] += 1;
for (let c = 0; c < side * side; c += 1) starts[c + 1] += starts[c];
const free = starts.slice();
for (let i = 0; i < count; i += 1) { inCell[free[cellOf(i)]] = i; free[cellOf(i)] += 1; }

// ----------------------------------------------------------------------------------------------------- search

// A word without its ending, roughly: "rupees" and "rupee", "losing", "lose" and "loss" are one. English only.
function stem(word) {
  if (!/^[a-z]{4,}$/.test(word)) return word;
  let root = word.replace(/ies$/, "y").replace(/(x|ch|sh)es$/, "$1").replace(/([^sui])s$/, "$1");
  root = root.replace(/(.*[aeiouy].+)(ing|ed|ly)$/, "$1");
  return root.replace(/(.{2,})e$/, "$1").replace(/([^aeiou])\1$/, "$1");
}

const stemsOf = (text) => (text.toLowerCase().match(/[\p{L}\p{N}\p{M}]+/gu) || []).map(stem);
const meanLength = texts.reduce((sum, text) => sum + text.length, 1) / count;
let postings = null;  // The texts of each stem, in their order; made at the first search.

function index() {
  postings = new Map();
  texts.forEach((text, i) => {
    for (const root of new Set(stemsOf(text))) {
      if (postings.has(root)) postings.get(root).push(i); else postings.set(root, [i]);
    }
  });
}

// The texts with all words of a query, in any order; the last word may be unfinished. What has no such words at all
// ("C++") is looked for as it is.
function withWords(query) {
  if (!postings) index();
  const roots = stemsOf(query);
  let rows = null;
  for (const [at, root] of roots.entries()) {
    const unfinished = at === roots.length - 1 || !postings.has(root);
    const own = new Set(postings.get(root));
    if (unfinished) for (const [known, list] of postings) if (known.startsWith(root)) for (const i of list) own.add(i);
    rows = rows === null ? own : new Set([...rows].filter((i) => own.has(i)));
  }
  if (rows === null || !rows.size || /[^\p{L}\p{N}\p{M}\s'"?.,!-]/u.test(query)) {
    const plain = query.toLowerCase();
    rows = new Set([...texts.keys()].filter((i) => texts[i].toLowerCase().includes(plain)));
  }
  const score = new Map([...rows].map((i) => [i, relevance(texts[i], roots)]));
  return [...rows].sort((a, b) => score.get(b) - score.get(a) || texts[a].length - texts[b].length || a - b);
}

// How often the words are in a text, against its length, as in BM25; an unfinished word counts half.
function relevance(text, roots) {
  const stems = stemsOf(text), norm = 0.3 + 0.9 * text.length / meanLength;
  const times = (root) => stems.reduce((sum, own) => sum + (own === root ? 1 : own.startsWith(root) ? 0.5 : 0), 0);
  return roots.map(times).reduce((sum, number) => sum + number / (number + norm), 0);
}

// The texts whose meaning is nearest to some: those that are most often, and most closely, their neighbours.
function similarTo(rows, most = 50) {
  const sums = new Map(), given = new Set(rows);
  for (const row of nearby ? rows.slice(0, 500) : []) {
    for (let k = row * nearby.size; k < (row + 1) * nearby.size; k += 1) {
      const near = nearby.rows[k];
      if (!given.has(near)) sums.set(near, (sums.get(near) || 0) + nearby.cosines[k] / 255);
    }
  }
  return [...sums].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, most);
}

// ------------------------------------------------------------------------------------------------------ state

const canvas = element("map");
const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
const tip = element("tip");
const view = { x: 0, y: 0, scale: 1 };  // The point in the middle, and pixels a unit.
const lit = new Uint8Array(count).fill(1);  // What the search, the topic, the columns and the selection leave.
let width = 0, height = 0, ratio = 1, least = 1;
let query = "", topic = null, area = null, hits = count, current = -1, drawn = 0, moved = false, waiting = false;
let listed = [], heading = "", pinned = -1, colouring = data.colour, selecting = false;

const toScreen = (i) => [(points[2 * i] - view.x) * view.scale + width / 2, height / 2 - (points[2 * i + 1] - view.y) * view.scale];
const toMap = (x, y) => [(x - width / 2) / view.scale + view.x, (height / 2 - y) / view.scale + view.y];
const limited = () => columns.filter((column) => column.limits || column.chosen);
const filtered = () => query !== "" || topic !== null || area !== null || limited().length > 0;

function fit() {
  least = Math.max(10, Math.min((width / 2 - 36) / extent[0], (height / 2 - 36) / extent[1]));
  Object.assign(view, { x: 0, y: 0, scale: least });
  moved = false;
  redraw();
}

function zoom(factor, x = width / 2, y = height / 2) {
  const scale = Math.min(least * 5000, Math.max(least / 2, view.scale * factor));
  view.x += (x - width / 2) * (1 / view.scale - 1 / scale);
  view.y -= (y - height / 2) * (1 / view.scale - 1 / scale);
  view.scale = scale;
  moved = true;
  redraw();
}

function pan(x, y) {
  view.x -= x / view.scale;
  view.y += y / view.scale;
  moved = true;
  redraw();
}

// Which texts are lit, after a change of the search, the topic, a column or the selection.
function filter() {
  const words = query ? withWords(query) : null;
  const own = new Set(words);
  const near = query ? similarTo(words).filter(([i]) => !own.has(i)) : [];
  const wanted = query ? new Set([...own, ...near.map(([i]) => i)]) : null;
  const limits = limited();
  hits = 0;
  for (let i = 0; i < count; i += 1) {
    lit[i] = (topic === null || levels[topic[0]].labels[i] === topic[1]) && (!area || area.has(i)) && (!wanted || wanted.has(i)) &&
      limits.every(({ limits: range, chosen, values }) => (range ? values[i] >= range[0] && values[i] <= range[1] : chosen.has(values[i])));
    hits += lit[i];
  }
  const all = `${english(count)} ${count === 1 ? "text" : "texts"}`;
  const found = words ? words.filter((i) => lit[i]) : [];
  element("count").textContent = !filtered() ? all : query ? `${english(found.length)} of ${all} by words, ${english(near.length)} by meaning` : `${english(hits)} of ${all}`;
  element("clear").hidden = !filtered();
  if (query) list([...found.map((i) => [i, null]), ...near.filter(([i]) => lit[i])], "");
  else if (pinned < 0) list([], "");
  point(-1);
  redraw();
}

// Show texts beside the map: [row, score], the score null for a hit by words.
function list(rows, title, card = "") {
  listed = rows;
  heading = title;
  element("reading").hidden = !rows.length && !card;
  element("card").replaceChildren(card);
  element("heading").textContent = title;
  const items = [];
  rows.slice(0, 200).forEach(([i, score], at) => {
    if (!title && score !== null && (at === 0 || rows[at - 1][1] === null)) items.push(create("li", { className: "rule", textContent: "similar in meaning" }));
    const button = create("button", { type: "button" }, create("span", { textContent: texts[i].slice(0, 300) }));
    if (score !== null && score <= 1) button.append(create("small", { textContent: score.toFixed(2) }));
    button.addEventListener("click", () => visit(i));
    button.dataset.row = i;
    items.push(create("li", {}, button));
  });
  element("hits").replaceChildren(...items);
}

// The lit point nearest to a place on the screen, -1 where none is close.
function nearest(x, y, reach = radius() + 8) {
  const [u, v] = toMap(x, y), r = reach / view.scale;
  let best = -1, closest = r * r;
  for (let row = cell(v - r); row <= cell(v + r); row += 1) {
    for (let column = cell(u - r); column <= cell(u + r); column += 1) {
      const here = row * side + column;
      for (let k = starts[here]; k < starts[here + 1]; k += 1) {
        const i = inCell[k], distance = (points[2 * i] - u) ** 2 + (points[2 * i + 1] - v) ** 2;
        if (lit[i] && distance <= closest) { best = i; closest = distance; }
      }
    }
  }
  return best;
}

const shownValue = (column, i) => {
  if (column.kind === "text") return column.values[i];
  if (column.kind === "category") return column.values[i] < 0 ? "" : column.names[column.values[i]];
  if (Number.isNaN(column.values[i])) return "";
  return column.kind === "date" ? new Date(column.values[i] * 1000).toISOString().slice(0, 19).replace("T00:00:00", "") : String(column.values[i]);
};

// What a text is: its words, its topics, and its columns.
function describe(i, most) {
  const parts = [create("span", { textContent: texts[i].length > most ? `${texts[i].slice(0, most)}…` : texts[i] })];
  const path = levels.map(({ names, labels }) => names[labels[i]]).filter(Boolean);
  if (path.length) parts.push(create("span", { className: "facts", textContent: path.join(" › ") }));
  for (const column of columns) {
    const value = shownValue(column, i);
    if (value !== "") parts.push(create("span", { className: "facts", textContent: `${column.name}: ${value}` }));
  }
  return parts;
}

// Show what a point says; -1 for none.
function point(i) {
  current = i;
  tip.hidden = i < 0 || i === pinned;
  if (!tip.hidden) tip.replaceChildren(...describe(i, 700));
  for (const button of element("hits").querySelectorAll("button")) button.setAttribute("aria-current", String(Number(button.dataset.row) === i));
  mark();
}

// Keep a text beside the map, with those that mean similar things.
function pin(i) {
  pinned = i;
  point(i);
  const card = document.createDocumentFragment();
  card.append(...describe(i, 4000));
  list(similarTo([i]), nearby ? "more like this" : "", card);
  openDrawer(true);
}

function visit(i) {
  const [x, y] = toScreen(i);
  if (x < 20 || y < 20 || x > width - 20 || y > height - 20) {
    Object.assign(view, { x: points[2 * i], y: points[2 * i + 1] });
    moved = true;
    redraw();
  }
  point(i);
}

// Go to the next hit of the search, or the next lit point, or the one before.
function walk(direction, rows = null) {
  if (rows && rows.length) {
    const at = rows.indexOf(current);
    visit(rows[at < 0 ? (direction > 0 ? 0 : rows.length - 1) : (at + direction + rows.length) % rows.length]);
  } else if (hits) {
    let i = current < 0 && direction < 0 ? 0 : current;
    do { i = (i + direction + count) % count; } while (!lit[i]);
    visit(i);
  }
}

// ---------------------------------------------------------------------------------------------------- drawing

const night = matchMedia("(prefers-color-scheme: dark)");
// Hue, saturation and lightness on a light ground; a dark one has them lighter.
const PALETTE = [[218, 70, 52], [30, 95, 46], [142, 64, 36], [350, 66, 52], [268, 60, 56], [22, 45, 36], [318, 64, 58], [196, 28, 38], [60, 80, 32], [188, 88, 36], [240, 70, 34], [12, 82, 68]];
const SCALE = [[70, 60, 160], [40, 120, 180], [50, 165, 140], [135, 190, 70], [235, 165, 30]];
let style = {};
let fills = new Uint32Array(0);  // The colours, as pixels.
let colourOf = finest;  // The colour of each text, -1 for none.

function rgb([hue, saturation, lightness], turn = 0) {
  const h = (hue + turn) / 30, light = Math.min(92, Math.max(15, night.matches ? lightness * 0.55 + 40 : lightness)) / 100;
  const reach = saturation / 100 * Math.min(light, 1 - light);
  return [0, 8, 4].map((n) => {
    const k = (n + h + 12) % 12;
    return Math.round(255 * (light - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  });
}

const pixel = ([red, green, blue]) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
const paletteColour = (number) => rgb(PALETTE[number % PALETTE.length], number >= PALETTE.length ? 15 : 0);

// A topic has the colour of its coarsest topic, and the parts of this differ in lightness and a little in hue.
function topicColour(level, label) {
  const row = levels[level].labels.indexOf(label);
  const top = row < 0 ? label : levels[0].labels[row];
  const [hue, saturation, lightness] = PALETTE[top % PALETTE.length];
  const shade = level === 0 ? 0 : (label % 5) - 2;
  return rgb([hue, saturation, lightness + 6 * shade], 5 * (label % 3 - 1) * (level > 0) + (top >= PALETTE.length ? 15 : 0));
}

function scaleColour(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (SCALE.length - 1), low = Math.floor(at);
  return SCALE[low].map((value, k) => Math.round((value + (SCALE[low + 1][k] - value) * (at - low)) * (night.matches ? 1.15 : 0.92))).map((value) => Math.min(255, value));
}

function hexPixel(name) {
  const value = parseInt(style[name].slice(1), 16);
  return pixel([value >> 16, value >> 8 & 255, value & 255]);
}

// Larger as one comes closer, and smaller where there are many.
function radius() {
  const base = Math.min(6, Math.max(1.4, 18 * count ** -0.22)) * Math.min(1, Math.sqrt(Math.min(width, height) / 600));
  return Math.min(9, base * Math.max(1, view.scale / least) ** 0.35);
}

// How much of each pixel a disc covers, as runs of [offset, opacity] in an image of this width, for its centre at each
// quarter of a pixel.
const discs = new Map();
function disc(r, opacity, columns) {
  const key = `${r} ${opacity} ${columns}`;
  if (discs.has(key)) return discs.get(key);
  if (discs.size > 200) discs.clear();
  const reach = Math.ceil(r + 1), made = [];
  for (let phase = 0; phase < 16; phase += 1) {
    const offsets = [], weights = [];
    for (let y = -reach; y <= reach; y += 1) {
      for (let x = -reach; x <= reach; x += 1) {
        const cover = Math.min(1, r + 0.5 - Math.hypot(x - (phase % 4) / 4, y - (phase >> 2) / 4));
        if (cover > 0.05) { offsets.push(y * columns + x); weights.push(Math.round(256 * cover * opacity)); }
      }
    }
    made.push([Int32Array.from(offsets), Int32Array.from(weights)]);
  }
  discs.set(key, made);
  return made;
}

// Blend the discs of the lit points, or of the others, into an image. This runs for every point of every frame, so it
// is plain: one pixel is one number, and red and blue are blended together, then green.
function stamp(image, wanted, single, r, opacity) {
  const columns = canvas.width, rows = canvas.height, made = disc(Math.round(r * ratio * 4) / 4, opacity, columns);
  const scale = view.scale * ratio, left = columns / 2 - view.x * scale, top = rows / 2 + view.y * scale, margin = Math.ceil(r * ratio + 2);
  for (let k = 0; k < count; k += 1) {
    const i = order[k];
    if (lit[i] !== wanted) continue;
    const u = points[2 * i] * scale + left, v = top - points[2 * i + 1] * scale, x = Math.floor(u), y = Math.floor(v);
    if (x < margin || y < margin || x >= columns - margin || y >= rows - margin) continue;
    const [offsets, weights] = made[Math.floor((v - y) * 4) * 4 + Math.floor((u - x) * 4)];
    const fill = single || fills[colourOf[i] + 1], mixed = fill & 0xff00ff, green = fill & 0xff00, at = y * columns + x;
    for (let n = 0; n < offsets.length; n += 1) {
      const spot = at + offsets[n], under = image[spot], weight = weights[n];
      const both = (under & 0xff00ff) + ((mixed - (under & 0xff00ff)) * weight >> 8) & 0xff00ff;
      const middle = (under & 0xff00) + ((green - (under & 0xff00)) * weight >> 8) & 0xff00;
      image[spot] = 0xff000000 | both | middle;
    }
    drawn += 1;
  }
}

let frame = null;  // The image that is drawn, and its pixels.
function draw() {
  waiting = false;
  ratio = window.devicePixelRatio || 1;
  const columns = Math.max(1, Math.round(width * ratio)), rows = Math.max(1, Math.round(height * ratio));
  if (!frame || canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
    frame = context.createImageData(columns, rows);
    frame.pixels = new Uint32Array(frame.data.buffer);
  }
  frame.pixels.fill(hexPixel("ground"));
  const r = radius();
  // Where points lie on each other, they are translucent, so that dense places are darker.
  const crowd = hits * Math.PI * r * r / (view.scale * view.scale * 4 * extent[0] * extent[1]);
  drawn = 0;
  if (filtered()) stamp(frame.pixels, 0, hexPixel("dim"), r, 0.8);
  stamp(frame.pixels, 1, 0, query ? Math.max(r, 3) : r, Math.min(0.9, Math.max(0.35, 0.75 / Math.sqrt(crowd))));
  context.putImageData(frame, 0, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  write();
  mark();
}

// Names where their topics are densest: those of the level that fits the zoom, then smaller ones of the next where there
// is space; one that would cover another is left out.
function write() {
  const near = view.scale / least, taken = [];
  const depth = Math.min(levels.length - 1, near < 1.9 ? 0 : near < 4.5 ? 1 : 2);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  levels.slice(depth, depth + 2).forEach(({ names, peaks }, below) => {
    context.font = below ? "12px system-ui, sans-serif" : "600 14px system-ui, sans-serif";
    names.forEach((name, label) => {
      if (peaks[label] < 0 || (filtered() && !lit[peaks[label]])) return;
      const short = shorten(name, 34);
      const [x, y] = toScreen(peaks[label]);
      const half = context.measureText(short).width / 2 + 4;
      if (x < half || y < 10 || x > width - half || y > height - 10) return;
      const space = below ? 30 : 20;
      if (taken.some(([u, v, w]) => Math.abs(u - x) < half + w + 6 * below && Math.abs(v - y) < space)) return;
      taken.push([x, y, half]);
      context.lineWidth = 4;
      context.strokeStyle = style.ground;
      context.strokeText(short, x, y);
      context.fillStyle = below ? style.soft : style.ink;
      context.fillText(short, x, y);
    });
  });
}

// A name without its last terms, or else cut.
function shorten(name, most) {
  const terms = name.split(", ");
  while (terms.length > 1 && terms.join(", ").length > most) terms.pop();
  const short = terms.join(", ");
  return short.length > most ? `${short.slice(0, most - 1)}…` : short;
}

// A ring around the point that is read, and its text beside it: elements, so that nothing is drawn anew for them.
function mark() {
  element("ring").hidden = current < 0;
  if (current < 0) return;
  const [x, y] = toScreen(current), r = radius();
  Object.assign(element("ring").style, { left: `${x - r - 5}px`, top: `${y - r - 5}px`, width: `${2 * r + 10}px`, height: `${2 * r + 10}px` });
  const gap = r + 12;
  const left = x + gap + tip.offsetWidth < width ? x + gap : x - gap - tip.offsetWidth;
  const top = Math.min(y + gap, height - tip.offsetHeight - 8);
  tip.style.left = `${Math.max(8, Math.min(left, width - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function redraw() {
  if (!waiting) { waiting = true; requestAnimationFrame(draw); }
}

// -------------------------------------------------------------------------------------------- colours and legend

function recolour() {
  const given = getComputedStyle(document.documentElement);
  for (const name of ["ground", "ink", "soft", "dim"]) style[name] = given.getPropertyValue(`--${name}`).trim();
  const column = columns.find(({ name }) => name === colouring);
  let colours = [];
  if (!column) {
    colourOf = finest;
    const level = levels.length - 1;
    if (level >= 0) colours = levels[level].names.map((_, label) => topicColour(level, label));
  } else if (column.kind === "category") {
    colourOf = column.values;
    colours = column.names.map((_, label) => (label < 2 * PALETTE.length ? paletteColour(label) : null));
  } else {
    const [low, high] = column.range;
    colours = Array.from({ length: 64 }, (_, at) => scaleColour((at + 0.5) / 64));
    colourOf = Int16Array.from(column.values, (value) => (Number.isNaN(value) ? -1 : Math.min(63, Math.max(0, Math.floor(64 * (value - low) / (high - low || 1))))));
  }
  const none = levels.length || column ? hexPixel("soft") : pixel(paletteColour(0));
  fills = Uint32Array.from([none, ...colours.map((colour) => (colour ? pixel(colour) : none))]);
  element("range").hidden = !column || column.kind === "category";
  element("gradient").style.background = `linear-gradient(90deg, ${SCALE.map((_, at) => css(scaleColour(at / (SCALE.length - 1)))).join(", ")})`;
  legend(column);
  if (!element("range").hidden) bounds(column);
  redraw();
}

function entry(name, size, colour, pressed, press) {
  const swatch = create("i");
  swatch.style.background = colour;
  const button = create("button", { type: "button" }, swatch, create("span", { textContent: name }), create("small", { textContent: english(size) }));
  button.setAttribute("aria-pressed", String(pressed));
  button.addEventListener("click", press);
  return create("li", {}, button);
}

function legend(column) {
  if (column) {
    const sizes = (column.names || []).map(() => 0);
    if (column.names) column.values.forEach((label) => { if (label >= 0) sizes[label] += 1; });
    element("legend").replaceChildren(...(column.names || []).map((name, label) => entry(
      name, sizes[label], label < 2 * PALETTE.length ? css(paletteColour(label)) : style.soft, Boolean(column.chosen && column.chosen.has(label)),
      () => {
        const chosen = new Set(column.chosen);
        if (!chosen.delete(label)) chosen.add(label);
        column.chosen = chosen.size ? chosen : null;
        refresh();
      },
    )));
    return;
  }
  // Below a topic that is chosen stand its parts.
  const parts = (level, within) => {
    const sizes = new Map();
    levels[level].labels.forEach((label, i) => { if (label >= 0 && within(i)) sizes.set(label, (sizes.get(label) || 0) + 1); });
    return [...sizes].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([label, size]) => {
      const above = topic && levels[topic[0]].labels.indexOf(topic[1]);  // A text of the chosen topic.
      const open = topic !== null && topic[0] >= level && levels[level].labels[above] === label;
      const item = entry(levels[level].names[label], size, css(topicColour(level, label)), open && topic[0] === level, () => {
        topic = open && topic[0] === level ? null : [level, label];
        refresh();
      });
      if (open && level + 1 < levels.length) item.append(create("ul", {}, ...parts(level + 1, (i) => levels[level].labels[i] === label)));
      return item;
    });
  };
  element("legend").replaceChildren(...(levels.length ? parts(0, () => true) : []));
}

// What the two sliders leave of a column of numbers or dates; at their ends, also what lies beyond the range.
function bounds(column) {
  const [low, high] = column.range;
  const ends = ["low", "high"].map((id) => Number(element(id).value)).sort((a, b) => a - b);
  const values = ends.map((end) => low + (high - low) * end / 1000);
  const shown = values.map((end) => (column.kind === "date" ? new Date(end * 1000).toISOString().slice(0, 10) : Number(end.toPrecision(4)).toLocaleString("en")));
  element("bounds").textContent = `${shown[0]} to ${shown[1]} (${column.name})`;
  return [ends[0] > 0 ? values[0] : -Infinity, ends[1] < 1000 ? values[1] : Infinity];
}

function refresh() {
  const at = document.activeElement && document.activeElement.closest("#legend button");
  const place = at ? [...document.querySelectorAll("#legend button")].indexOf(at) : -1;
  legend(columns.find(({ name }) => name === colouring));
  if (place >= 0) (document.querySelectorAll("#legend button")[place] || canvas).focus();
  filter();
}

// ----------------------------------------------------------------------------------------------- interactions

const pressed = new Map();  // Pointers that are down, and where they were.
let travelled = 0, loop = [];

const place = (event) => [event.offsetX, event.offsetY];

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pressed.set(event.pointerId, place(event));
  travelled = 0;
  loop = selecting || event.shiftKey ? [place(event)] : [];
});

canvas.addEventListener("pointermove", (event) => {
  const [x, y] = place(event);
  const from = pressed.get(event.pointerId);
  if (!from) { if (event.pointerType !== "touch") hover(x, y); return; }
  travelled += Math.hypot(x - from[0], y - from[1]);
  const other = [...pressed].find(([id]) => id !== event.pointerId);
  if (loop.length && !other) {
    loop.push([x, y]);
    element("loop").setAttribute("points", loop.map(([u, v]) => `${u},${v}`).join(" "));
  } else if (other) {  // Two fingers: the distance zooms, and half of the way moves.
    const [u, v] = other[1];
    zoom(Math.hypot(x - u, y - v) / Math.max(1, Math.hypot(from[0] - u, from[1] - v)), (x + u) / 2, (y + v) / 2);
    pan((x - from[0]) / 2, (y - from[1]) / 2);
  } else {
    pan(x - from[0], y - from[1]);
  }
  pressed.set(event.pointerId, [x, y]);
});

canvas.addEventListener("pointerup", (event) => {
  pressed.delete(event.pointerId);
  if (loop.length > 2) select();
  else if (travelled < 5) {
    const i = nearest(...place(event), event.pointerType === "touch" ? 24 : undefined);
    if (i >= 0) pin(i); else unpin();
  }
  endLoop();
});
canvas.addEventListener("pointercancel", (event) => { pressed.delete(event.pointerId); endLoop(); });
canvas.addEventListener("pointerleave", () => { if (!pressed.size) hover(-1e9, -1e9); });
canvas.addEventListener("dblclick", (event) => zoom(2, ...place(event)));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.03 : 0.0015)), ...place(event));
}, { passive: false });

function endLoop() {
  loop = [];
  element("loop").setAttribute("points", "");
}

// Light only the points inside the line that was drawn.
function select() {
  const corners = loop.map(([x, y]) => toMap(x, y));
  const inside = new Set();
  for (let i = 0; i < count; i += 1) {
    if (!lit[i]) continue;
    const x = points[2 * i], y = points[2 * i + 1];
    let odd = false;
    corners.forEach(([u, v], k) => {
      const [s, t] = corners[(k + 1) % corners.length];
      if (v > y !== t > y && x < u + (y - v) / (t - v) * (s - u)) odd = !odd;
    });
    if (odd) inside.add(i);
  }
  area = inside;
  toggleSelecting(false);
  filter();
}

function toggleSelecting(on) {
  selecting = on;
  element("lasso").setAttribute("aria-pressed", String(on));
  document.body.classList.toggle("selecting", on);
}

function unpin() {
  pinned = -1;
  filter();
}

function hover(x, y) {
  const i = nearest(x, y);
  if (i !== current) point(i);
}

// The texts that are lit, with their topics and columns, as comma-separated values.
function csv() {
  const quote = (value) => `"${String(value).replace(/"/g, '""')}"`;
  const names = levels.map((_, level) => `topic ${level + 1}`);
  const lines = [["text", ...names, ...columns.map(({ name }) => name)]];
  for (let i = 0; i < count; i += 1) {
    if (lit[i]) lines.push([texts[i], ...levels.map((level) => level.names[level.labels[i]] || ""), ...columns.map((column) => shownValue(column, i))]);
  }
  return `${lines.map((line) => line.map(quote).join(",")).join("\r\n")}\r\n`;
}

function save() {
  const link = create("a", { href: URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv" })), download: "selection.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

function openDrawer(open) {
  element("panel").classList.toggle("open", open);
  element("drawer").setAttribute("aria-expanded", String(open));
}

function showAll() {
  element("search").value = query = "";
  topic = area = null;
  pinned = -1;
  for (const column of columns) column.limits = column.chosen = null;
  element("low").value = 0;
  element("high").value = 1000;
  toggleSelecting(false);
  endLoop();
  recolour();
  filter();
}

const KEYS = {
  "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: fit,
  ArrowLeft: () => pan(60, 0), ArrowRight: () => pan(-60, 0), ArrowUp: () => pan(0, 60), ArrowDown: () => pan(0, -60),
  n: () => walk(1), p: () => walk(-1), s: () => toggleSelecting(!selecting), "/": () => element("search").focus(),
  Enter: () => { if (current >= 0) pin(current); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { showAll(); return; }
  if (event.target === element("search")) {
    if (event.key === "Enter") walk(event.shiftKey ? -1 : 1, listed.map(([i]) => i));
    return;
  }
  if (event.target.matches("select, input, button") && (event.key === "Enter" || event.target.tagName !== "BUTTON")) return;
  if (!Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});

element("search").addEventListener("input", () => {
  query = element("search").value.trim();
  pinned = -1;
  filter();
});
element("search").addEventListener("focus", () => openDrawer(true));
element("drawer").addEventListener("click", () => openDrawer(!element("panel").classList.contains("open")));
element("in").addEventListener("click", () => zoom(1.5));
element("out").addEventListener("click", () => zoom(1 / 1.5));
element("all").addEventListener("click", fit);
element("lasso").addEventListener("click", () => { toggleSelecting(!selecting); openDrawer(false); });
element("save").addEventListener("click", save);
element("clear").addEventListener("click", showAll);
for (const id of ["low", "high"]) {
  element(id).addEventListener("input", () => {
    const column = columns.find(({ name }) => name === colouring);
    const whole = element("low").value === "0" && element("high").value === "1000";
    const limits = bounds(column);
    column.limits = whole ? null : limits;
    filter();
  });
}
const choices = columns.filter(({ kind }) => kind !== "text");
element("by").hidden = !choices.length;
element("colour").append(...["topics", ...choices.map(({ name }) => name)].map((name, at) => create("option", { value: at, textContent: name, selected: at > 0 && name === colouring })));
element("colour").addEventListener("change", () => {
  colouring = Number(element("colour").value) ? choices[element("colour").value - 1].name : null;
  const column = columns.find(({ name }) => name === colouring);
  const [low, high] = (column && column.range) || [0, 1], limits = (column && column.limits) || [-Infinity, Infinity];
  ["low", "high"].forEach((id, at) => { element(id).value = 1000 * Math.min(1, Math.max(0, (limits[at] - low) / (high - low || 1))); });
  recolour();
});

matchMedia("(max-width: 640px)").addEventListener("change", () => openDrawer(false));
new ResizeObserver(() => {
  width = canvas.clientWidth;
  height = canvas.clientHeight;
  if (moved) redraw(); else fit();
}).observe(canvas);
night.addEventListener("change", recolour);
recolour();
filter();
