// The page of `oz explorer`. It asks for the visible rows once a second, and changes only texts that differ.
// Text of the bus is set by textContent alone, so that it is never read as HTML.

const INTERVAL = 1000; // milliseconds
const TYPING = 200; // milliseconds without a key after which a pattern is sent
const GRAPH_NODES = 60;

const at = id => document.getElementById(id);
const open = new Set();
let selected = null;
let paused = false;

const count = number => Math.round(number).toLocaleString("en");
const rate = number => (number && number < 10 ? number.toFixed(1) : count(number));
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

function make(name, text, attributes = {}) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

const faults = new Map(); // of each loop

function showFault(task, text) {
  faults.set(task, text);
  setText(at("fault"), [...new Set(faults.values())].filter(Boolean).join(" "));
}

// A loop that asks again after INTERVAL, or at once after `soon`. Only one request is under way.
function repeat(task) {
  let timer, running = false, again = false;
  async function run() {
    clearTimeout(timer);
    if (running) { again = true; return; }
    running = true;
    do {
      again = false;
      try {
        await task();
        showFault(task, "");
      } catch (error) {
        showFault(task, error instanceof TypeError ? "The explorer does not answer." : error.message);
      }
    } while (again);
    running = false;
    if (!paused && !document.hidden) timer = setTimeout(run, INTERVAL);
  }
  return run;
}

// Subjects

const treeRows = new Map();

function makeRow(path) {
  const row = make("tr"), head = make("th", undefined, { scope: "row" });
  const toggle = make("button", undefined, { type: "button", class: "toggle" });
  const name = make("button", undefined, { type: "button", class: "name" });
  const size = make("span", "", { class: "count" });
  toggle.addEventListener("click", () => {
    if (!open.delete(path)) open.add(path);
    askSubjects();
  });
  name.addEventListener("click", () => {
    if (row.dataset.subject) {
      selected = path;
      askSubjects();
    } else toggle.click();
  });
  head.append(toggle, name, size);
  row.append(head, make("td", "", { class: "number" }), make("td", "", { class: "number" }), make("td", ""));
  return row;
}

function updateRow(row, found) {
  const [toggle, name, size] = row.firstChild.children;
  const isOpen = open.has(found.path);
  row.dataset.subject = found.is_subject ? "yes" : "";
  row.classList.toggle("chosen", found.path === selected);
  row.firstChild.style.paddingLeft = `${Math.min(found.level - 1, 8) * 0.9}rem`;
  toggle.hidden = !found.children;
  setText(toggle, isOpen ? "▾" : "▸");
  toggle.setAttribute("aria-expanded", isOpen);
  toggle.setAttribute("aria-label", `Entries below ${found.label}`);
  name.classList.toggle("leaf", !found.children);
  if (found.is_subject) name.setAttribute("aria-pressed", found.path === selected);
  else name.removeAttribute("aria-pressed");
  setText(name, found.label);
  if (name.title !== found.label) name.title = found.label;
  const shown = isOpen && found.shown < found.children ? `${count(found.shown)} of ` : "";
  setText(size, found.children ? ` ${shown}${count(found.children)}` : "");
  const cells = row.children;
  setText(cells[1], rate(found.rate));
  setText(cells[2], count(found.messages));
  setText(cells[3], found.preview);
}

function showTree(rows) {
  const body = at("tree").tBodies[0], paths = new Set(rows.map(row => row.path));
  for (const [path, row] of treeRows) if (!paths.has(path)) { row.remove(); treeRows.delete(path); }
  let place = body.firstChild;
  for (const found of rows) {
    let row = treeRows.get(found.path);
    if (!row) treeRows.set(found.path, row = makeRow(found.path));
    updateRow(row, found);
    if (row === place) place = place.nextSibling;
    else body.insertBefore(row, place);
  }
}

function showSampling(sampling) {
  const { subjects, messages, rate: now, others, dropped } = sampling;
  setText(at("totals"), `${plural(subjects, "subject")}, ${plural(messages, "message")}, ${rate(now)} per second`);
  const notes = [`Sampled once a second: the busiest ${sampling.branch_rows} entries of a branch, ${sampling.max_rows} rows at most.`];
  if (sampling.first_level > sampling.branch_rows) notes.push(`First level: ${sampling.branch_rows} of ${count(sampling.first_level)}.`);
  if (others) notes.push(`The table is full at ${plural(sampling.max_subjects, "subject")}; ${plural(others, "message")} of others.`);
  if (dropped) notes.push(`${plural(dropped, "message")} were too many for the explorer and are not counted.`);
  setText(at("sampling"), notes.join(" "));
}

function showPattern(found, sampling) {
  at("result").hidden = !found;
  if (!found) return;
  setText(at("pattern-error"), found.error ?? "");
  at("explained").hidden = at("selectivity").hidden = Boolean(found.error);
  if (found.error) return;
  const share = sampling.messages ? found.matched_messages / sampling.messages : 0;
  const checked = found.tested < sampling.subjects ? `, ${count(found.tested)} tested so far` : "";
  const lines = {
    Dialect: found.dialect,
    Prefixes: found.prefixes.map(prefix => prefix || "(empty: all messages cross)").join("  "),
    Regex: found.regex,
    Subjects: `${count(found.matched)} of ${count(sampling.subjects)} match${checked}`,
    Messages: `${(100 * share).toFixed(1)} % match: ${count(found.matched_messages)}. The prefixes pass ${count(found.crossed_messages)}.`,
    ...(found.warnings.length ? { Advice: found.warnings.join(" ") } : {}),
  };
  const list = at("explained");
  const names = Object.keys(lines);
  if ([...list.querySelectorAll("dt")].map(term => term.textContent).join() !== names.join())
    list.replaceChildren(...names.flatMap(name => [make("dt", name), make("dd")]));
  list.querySelectorAll("dd").forEach((element, place) => setText(element, lines[names[place]]));
  at("selectivity").value = share;
}

function showMessage(message) {
  at("payload").hidden = !message;
  if (!message) {
    if (selected !== null) setText(at("message-about"), "No message yet.");
    return;
  }
  const size = message.shown_bytes < message.bytes ? `first ${count(message.shown_bytes)} of ${plural(message.bytes, "byte")}` : plural(message.bytes, "byte");
  const time = new Date(1000 * message.time).toISOString().slice(11, 23);
  setText(at("message-about"), `${message.subject}, ${time} UTC, ${size}, as ${message.form}`);
  setText(at("payload"), message.text);
}

const askSubjects = repeat(async () => {
  const pattern = at("pattern").value;
  const found = await ask("api/subjects", {
    open: [...open], pattern, dialect: at("dialect").value, selected, form: at("form").value || "auto",
  });
  showTree(found.rows);
  showSampling(found.sampling);
  showPattern(found.pattern, found.sampling);
  showMessage(found.message);
});

// Nodes

const SVG = "http://www.w3.org/2000/svg";

function draw(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function graphNodes(bus) {
  const subscribers = new Map(bus.subscribers.map(row => [row.id, row]));
  const node = (id, name, silent) => ({ name, silent, slow: subscribers.get(id)?.slow ?? false, pending: subscribers.get(id)?.pending ?? 0 });
  const found = new Map(bus.nodes.map(row => [row.id, node(row.id, row.node, false)]));
  for (const link of bus.links) if (!found.has(link.to)) found.set(link.to, node(link.to, link.to_name, true));
  const important = [...found].sort(([, one], [, other]) => other.slow - one.slow);
  return { all: found.size, shown: new Map(important.slice(0, GRAPH_NODES).sort(([, one], [, other]) => one.name.localeCompare(other.name))) };
}

function showGraph(bus) {
  const svg = at("graph"), width = svg.clientWidth || 600, { all, shown } = graphNodes(bus);
  const height = Math.round(Math.min(560, Math.max(280, 0.7 * width)));
  const across = Math.max(40, width / 2 - Math.min(130, width / 4)), down = height / 2 - 45;
  let place = 0;
  for (const node of shown.values()) {
    const angle = (2 * Math.PI * place++) / shown.size - Math.PI / 2;
    Object.assign(node, { angle, x: width / 2 + across * Math.cos(angle), y: height / 2 + down * Math.sin(angle) });
  }
  const links = bus.links.filter(link => shown.has(link.from) && shown.has(link.to));
  const parts = [];
  // Links without pending messages come first, so that the others are drawn above them.
  for (const link of [...links].reverse()) {
    const from = shown.get(link.from), to = shown.get(link.to);
    // The curve bends to its right, so that two nodes that subscribe to each other have two lines.
    const bend = { x: (from.x + to.x) / 2 - (to.y - from.y) * 0.12, y: (from.y + to.y) / 2 + (to.x - from.x) * 0.12 };
    const length = Math.hypot(to.x - bend.x, to.y - bend.y) || 1;
    const end = { x: to.x - ((to.x - bend.x) * 12) / length, y: to.y - ((to.y - bend.y) * 12) / length };
    const kind = link.state !== "up" || link.dropped ? "bad" : link.pending ? "pending" : "";
    const line = draw("path", { d: `M${from.x} ${from.y} Q${bend.x} ${bend.y} ${end.x} ${end.y}`, class: kind, "marker-end": "url(#arrow)" });
    line.append(draw("title", {}, `${from.name} to ${to.name}: ${link.state}, ${link.pending} pending, ${link.dropped} dropped`));
    parts.push(line);
    if (kind) parts.push(draw("text", { x: (from.x + to.x + 2 * bend.x) / 4, y: (from.y + to.y + 2 * bend.y) / 4, "text-anchor": "middle", class: "halo" },
      link.state === "up" ? count(link.pending || link.dropped) + (link.pending ? "" : " dropped") : link.state));
  }
  for (const node of shown.values()) {
    const side = Math.cos(node.angle), anchor = side > 0.2 ? "start" : side < -0.2 ? "end" : "middle";
    const lift = anchor === "middle" ? (node.y < height / 2 ? -14 : 22) : 4;
    parts.push(draw("circle", { cx: node.x, cy: node.y, r: 8, class: node.silent ? "silent" : node.slow ? "slow" : "" }));
    const room = Math.max(6, Math.floor((anchor === "middle" ? width / 3 : width / 2 - across - 14) / 7));
    const name = node.name.length > room ? `${node.name.slice(0, room - 1)}…` : node.name;
    const x = node.x + (anchor === "start" ? 13 : anchor === "end" ? -13 : 0);
    const label = (text, y, kind) => parts.push(draw("text", { x, y, "text-anchor": anchor, class: kind }, text));
    label(name, node.y + lift, "halo");
    if (node.pending) label(`${count(node.pending)} pending`, node.y + lift + (lift < 0 ? -14 : 14), `halo ${node.slow ? "slow" : ""}`);
  }
  const marker = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", markerUnits: "userSpaceOnUse" });
  marker.append(draw("path", { d: "M0 0 8 4 0 8z", class: "arrow" }));
  const defs = draw("defs", {});
  defs.append(marker);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.classList.toggle("many", links.length > 60);
  const pending = links.filter(link => link.pending).length;
  svg.setAttribute("aria-label", `${plural(shown.size, "node")} and ${plural(links.length, "link")}, ${count(pending)} with pending messages. The tables below have the same.`);
  svg.replaceChildren(defs, ...parts);
  const hidden = bus.links.length - links.length + bus.omitted_links;
  setText(at("nodes-about"), [
    `${plural(bus.nodes.length, "node")} answered.`,
    bus.unanswered.length ? `No answer: ${bus.unanswered.join(", ")}.` : "",
    all > shown.size ? `The graph has ${shown.size} of ${all} nodes.` : "",
    hidden > 0 ? `${plural(hidden, "link")} not drawn.` : "",
  ].filter(Boolean).join(" "));
}

const seconds = value => (value === null ? "–" : `${value.toFixed(1)} s`);
const TABLES = {
  subscribers: { Node: row => row.node, Pending: row => row.pending, Oldest: row => seconds(row.oldest), Dropped: row => row.dropped, State: row => (row.slow ? `${row.state}, slow` : row.state) },
  groups: { Group: row => row.group, Members: row => row.members, Lag: row => row.pending },
  losses: { Node: row => row.node, Kind: row => row.kind, Reason: row => row.reason, Messages: row => row.count },
  nodes: { Node: row => row.node, "In / s": row => rate(row.in), "Out / s": row => rate(row.out), Peers: row => row.peers, Memory: row => (row.memory === null ? "–" : `${count(row.memory / 1e6)} MB`) },
};
const TITLES = { subscribers: "Subscribers: the slowest first", groups: "Queue groups", losses: "Losses", nodes: "Nodes: rates and memory" };
const isNumber = name => !["Node", "Group", "Kind", "Reason", "State"].includes(name);

function showTable(name, rows) {
  const id = `table-${name}`, columns = Object.entries(TABLES[name]);
  let table = at(id);
  if (!table) {
    const box = make("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": TITLES[name] });
    table = make("table", undefined, { id });
    const head = make("tr");
    head.append(...columns.map(([title]) => make("th", title, { scope: "col", ...(isNumber(title) && { class: "number" }) })));
    table.append(make("caption", TITLES[name]), make("thead"), make("tbody"));
    table.tHead.append(head);
    box.append(table);
    at("tables").append(box);
  }
  table.parentNode.hidden = !rows.length;
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastChild.remove();
  rows.forEach((found, place) => {
    let row = body.rows[place];
    if (!row) {
      row = make("tr");
      row.append(...columns.map(([title], index) => make(index ? "td" : "th", "", { ...(index ? {} : { scope: "row" }), ...(isNumber(title) && { class: "number" }) })));
      body.append(row);
    }
    columns.forEach(([, value], index) => {
      const shown = value(found);
      setText(row.cells[index], typeof shown === "number" ? count(shown) : shown);
    });
    row.classList.toggle("bad", Boolean(found.slow));
  });
}

const askBus = repeat(async () => {
  const bus = await ask("api/bus");
  showGraph(bus);
  for (const name of Object.keys(TABLES)) showTable(name, bus[name]);
});

// Start

function typed() {
  let timer;
  at("pattern").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(askSubjects, TYPING);
  });
  at("filter").addEventListener("submit", event => { event.preventDefault(); askSubjects(); });
}

function publishForm() {
  at("publish").hidden = false;
  at("publish-form").addEventListener("submit", async event => {
    event.preventDefault();
    const [subject, payload, form] = ["publish-subject", "publish-payload", "publish-as"].map(id => at(id).value);
    try {
      await ask("api/publish", { subject, payload, form });
      setText(at("published"), `Published to ${subject} at ${new Date().toISOString().slice(11, 19)} UTC.`);
    } catch (error) {
      setText(at("published"), error.message);
    }
  });
}

async function start() {
  const settings = await ask("api/settings");
  setText(at("bus"), settings.bus);
  document.title = `oz explorer: ${settings.bus}`;
  at("dialect").append(...settings.dialects.map(name => make("option", name, { value: name })));
  at("form").append(...settings.forms.map(name => make("option", name, { value: name })));
  if (settings.publish) publishForm();
  typed();
  for (const id of ["dialect", "form"]) at(id).addEventListener("change", askSubjects);
  at("pause").addEventListener("click", () => {
    paused = !paused;
    at("pause").setAttribute("aria-pressed", paused);
    if (!paused) { askSubjects(); askBus(); }
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !paused) { askSubjects(); askBus(); }
  });
  askSubjects();
  askBus();
}

start().catch(error => setText(at("fault"), error.message));
