"use strict";
// Callers choose what they are called, so names are only ever set as text.

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
// What the horizontal axis may show, and where its labels stand, in seconds before now: the shortest that has
// room for what there is.
const SPANS = [
  { name: "30 seconds", at: [30, 20, 10, 0] }, { name: "minute", at: [60, 40, 20, 0] },
  { name: "two minutes", at: [120, 90, 60, 30, 0] }, { name: "three minutes", at: [180, 120, 60, 0] },
];

// set changes a text only if it differs, so that a selection in it stays.
function set(node, value) {
  if (node.textContent !== String(value)) node.textContent = value;
}

function text(id, value) {
  set($(id), value);
}

// Rows are sorted this seldom, and a press is ignored this long on a row that sorting has moved: it may have been
// meant for the row that was there before.
const SORT_MS = 10000, SETTLE_MS = 700;
const MIN_HELD = 10; // a table that is held gets at most twice its rows, and of fewer than these, twice these

// held returns the table that the pointer, the focus or a selection is in, if any. An open question holds the first:
// the button that asked gets the focus back.
function held() {
  if ($("ask").open) return document.querySelector("table");
  const selection = getSelection();
  return [...document.querySelectorAll("table")].find((table) => table.matches(":hover, :has(:focus-visible)") ||
    !selection.isCollapsed && selection.containsNode(table, true));
}

// cut leaves out the middle of a long name.
function cut(name) {
  return name.length > 72 ? name.slice(0, 48) + "…" + name.slice(-20) : name;
}

// put shows a cell: a text, perhaps with what stands out and a bar below it, or a button, which without an act is only
// a text.
function put(row, td, c) {
  if (td.className !== (c.className || "")) td.className = c.className || "";
  let node = td.firstChild;
  if (c.button) {
    if (!node) {
      node = td.appendChild(document.createElement("button"));
      node.onclick = (event) => press(row, td, event);
    }
    td.act = c.act;
    td.done = c.done;
    node.ariaDisabled = c.act ? "false" : "true";
  } else if (!node) {
    node = td.appendChild(document.createTextNode(""));
    for (const part of ["stands", "bar"]) if (c[part] !== undefined) td.appendChild(document.createElement("span")).className = part;
  }
  set(node, c.button || c.text);
  (c.button ? node : td).title = c.title || "";
  if (c.stands !== undefined) set(td.querySelector(".stands"), c.stands);
  if (c.bar !== undefined) td.lastChild.style.width = c.bar + "%";
}

async function press(row, td, event) {
  if (!td.act) return;
  if (event.detail > 0 && performance.now() - row.moved < SETTLE_MS) { // not by keyboard
    complain("The rows have just moved: press again.");
    return;
  }
  const done = td.done;
  if (await td.act() && done) put(row, td, { button: done });
}

// ask asks a question once, and returns whether the answer is yes.
let answer;
function ask(question) {
  text("ask-what", question);
  $("ask").showModal();
  return new Promise((resolve) => { answer = resolve; });
}

// fill shows items in a table. An item has the same row, found by its key, as long as it is shown. While a table is
// held, no row of any table is moved or removed, unless all are, and new ones are added below it only, or at its end.
// The button of a row without an item says ended, if given.
function fill(body, items, keyOf, cells, ended) {
  const table = body.closest("table"), holder = held(), rows = new Map(), now = performance.now();
  if (items.length === 0) body.replaceChildren();
  for (const row of body.rows) rows.set(row.dataset.key, row);
  const order = [], used = new Set();
  items.forEach((item, i) => {
    let key = String(keyOf(item, i));
    while (used.has(key)) key += "'"; // names may be shown alike
    used.add(key);
    let row = rows.get(key);
    if (!row) {
      if (holder && (body.rows.length >= 2 * Math.max(items.length, MIN_HELD) ||
        table.compareDocumentPosition(holder) & Node.DOCUMENT_POSITION_FOLLOWING)) return;
      row = body.insertRow();
      row.dataset.key = key;
    }
    cells(item).forEach((c, i) => put(row, row.cells[i] || row.insertCell(), c));
    order.push(row);
    rows.delete(key);
  });
  for (const row of body.rows) row.classList.toggle("gone", rows.has(row.dataset.key));
  if (ended) for (const row of rows.values()) put(row, row.querySelector("td:has(button)"), { button: ended });
  if (!holder && !(now - body.sorted < SORT_MS)) sort(body, order, now);
}

// sort puts the rows in order, and removes all others but the focused one, which is not touched: a row that is taken
// out of the page, even to be moved, loses the focus.
function sort(body, order, now) {
  const focused = document.activeElement.closest("tr"), old = [...body.rows];
  if (focused && focused.parentNode === body && !order.includes(focused)) order.push(focused);
  const at = order.indexOf(focused);
  for (const row of old) if (!order.includes(row)) row.remove();
  order.forEach((row, i) => {
    if (i < at) focused.before(row);
    else if (i > at) body.append(row);
    if (old[i] !== row && body.sorted) row.moved = now;
  });
  body.sorted = now;
}

// span writes a time as a person would.
function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return s + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 129600) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
}

// at writes an instant with its date.
function at(ms) {
  return new Date(ms).toLocaleString();
}

// clock writes an instant, with its date if that is long ago.
function clock(ms, now) {
  return now - ms < 12 * 3600e3 ? new Date(ms).toLocaleTimeString() : at(ms);
}

const SVG = "http://www.w3.org/2000/svg";
function draw(parent, name, attributes, content) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (content !== undefined) e.textContent = content;
  parent.append(e);
  return e;
}

// ceiling returns the next even number that a person would end an axis at, at most a third above n from 5 on.
function ceiling(n) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(n, 4)));
  for (const step of [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10]) {
    const end = Math.round(step * unit);
    if (end >= Math.max(n, 4) && end % 2 === 0) return end;
  }
}

// frame is the part of a drawing that is as long as the history, of which there is little after the start.
function frame(n, width) {
  const left = 54, right = width - 10, shown = SPANS.find((span) => span.at[0] >= n), seconds = shown.at[0];
  const step = (right - left) / seconds;
  return { left, right, shown, seconds, step, xOf: (i) => left + (seconds - n + i) * step };
}

// slowness draws how long the upstream took in each second in which it answered.
function slowness(of) {
  const svg = $("slow-chart"), width = svg.clientWidth || 1080, top = 8, bottom = 94, n = of.p99_ms?.length || 0;
  $("slow").hidden = !of.p99_ms?.some((ms) => ms > 0);
  svg.replaceChildren();
  if ($("slow").hidden) return;
  svg.setAttribute("viewBox", "0 0 " + width + " 104");
  const { left, right, xOf, step } = frame(n, width), most = ceiling(Math.max(...of.p99_ms));
  const y = (ms) => bottom - (bottom - top) * ms / most;
  for (const ms of [0, most]) {
    draw(svg, "line", { x1: left, x2: right, y1: y(ms), y2: y(ms), class: "grid" });
    draw(svg, "text", { x: left - 8, y: y(ms) + 4, "text-anchor": "end" }, ms ? millis(ms) : 0);
  }
  for (const [name, all] of [["p99", of.p99_ms], ["p50", of.p50_ms]]) {
    const points = all.map((ms, i) => ms > 0 && (xOf(i) + step / 2).toFixed(1) + "," + y(ms).toFixed(1)).filter(Boolean);
    draw(svg, "polyline", { points: points.join(" "), class: name });
  }
}

// chart draws the decisions of each second, and how many requests were given up by their clients, of the last of them.
function chart(series, gone = []) {
  const svg = $("chart"), width = svg.clientWidth || 1080, top = 10, bottom = 214;
  const { left, right, shown, seconds, step, xOf } = frame(series.admitted.length, width);
  svg.replaceChildren();
  svg.setAttribute("viewBox", "0 0 " + width + " 240"); // as wide as it is shown, so that text is not scaled
  let most = 1;
  for (let i = 0; i < series.admitted.length; i++) most = Math.max(most, series.admitted[i] + series.denied[i]);
  most = ceiling(most);
  const y = (n) => bottom - (bottom - top) * n / most;
  for (const n of [0, most / 2, most]) {
    draw(svg, "line", { x1: left, x2: right, y1: y(n), y2: y(n), class: "grid" });
    draw(svg, "text", { x: left - 8, y: y(n) + 4, "text-anchor": "end" }, number.format(n));
  }
  text("history", "The last " + shown.name);
  for (const s of shown.at) {
    draw(svg, "text", { x: right - s * step, y: bottom + 20, "text-anchor": s === seconds ? "start" : s === 0 ? "end" : "middle" },
      s === 0 ? "now" : s % 60 === 0 ? "−" + s / 60 + " min" : "−" + s + " s");
  }
  series.admitted.forEach((a, i) => {
    const lost = (series.errors?.[i] || 0) + (gone[gone.length - series.admitted.length + i] || 0);
    const d = series.denied[i], good = a - Math.min(a, lost);
    if (a + d === 0) return;
    const g = draw(svg, "g", {});
    draw(g, "title", {}, good + " admitted, " + (a > good ? a - good + " failed or given up, " : "") + d + " denied");
    for (const [from, to, name] of [[0, good, "a"], [good, a, "e"], [a, a + d, "d"]]) {
      if (to > from) draw(g, "rect", { x: xOf(i), width: step > 3 ? step - .8 : step, y: y(to), height: y(from) - y(to), class: name });
    }
  });
}

function complain(why) {
  text("deny-error", why);
  $("deny-error").hidden = false;
}

function send(method, { name, ...body }) {
  return fetch("/-/deny", {
    method, body: JSON.stringify(body), headers: { "Content-Type": "application/json", "Weir-Admin": "1" },
  }).catch((e) => ({ ok: false, text: async () => e.message }));
}

async function change(method, body) {
  $("deny-error").hidden = $("confirm").hidden = true;
  const r = await send(method, body);
  if (r.status === 409) {
    doubt(body, await r.json());
    return false;
  }
  if (!r.ok) {
    complain(await r.text());
    return false;
  }
  if (method === "POST") offer(body, JSON.parse(r.headers.get("Weir-Entry")));
  await look();
  return true;
}

// offer offers for a while to take a denial back: to have the entry again that it replaced, if there was one.
const UNDO_MS = 10000;
let offered;
document.onkeydown = (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !$("undo").hidden && !$("ask").open && !event.target.closest?.("input")) {
    event.preventDefault();
    $("undo-do").click();
  }
};
function offer(body, { id, prefix, replaced, until }) {
  const back = document.activeElement; // the button that denied
  const name = body.name || body.what || body.prefix;
  text("undo-what", cut(name) + " is denied" + (body.for ? " for " + body.for : "") + ".");
  $("undo").hidden = false;
  clearTimeout(offered);
  const close = () => {
    if ($("undo").contains(document.activeElement)) (back?.isConnected ? back : $("deny-what")).focus();
    $("undo").hidden = true;
  };
  const lapse = () => { // but not under a finger
    if ($("undo").matches(":hover, :focus-within")) offered = setTimeout(lapse, UNDO_MS);
    else close();
  };
  offered = setTimeout(lapse, UNDO_MS);
  $("undo-do").onclick = async () => {
    const again = { id, prefix, confirm: 1e9 };
    if (until) again.for = Math.max(1, Math.ceil((until - Date.now()) / 1000)) + "s";
    close();
    if (replaced) await send("POST", again);
    else await send("DELETE", { id, prefix });
    await look();
  };
}

// doubt asks for the number of callers that a denial would stop.
function doubt(body, d) {
  complain(d.error.split(";")[0] + ". Type " + d.confirm + " to deny it all the same.");
  $("confirm").hidden = false;
  $("confirm-number").value = "";
  $("confirm-number").focus();
  $("confirm").onsubmit = async (event) => {
    event.preventDefault();
    if ($("confirm-number").value.trim() !== String(d.confirm)) $("confirm-number").select();
    else if (await change("POST", { ...body, confirm: d.confirm })) $("deny-what").value = "";
  };
}

// count, denier and why are cells of a caller.
function count(c) {
  return { text: (c.error ? "≤ " : "") + number.format(c.n),
    title: c.error ? "between " + number.format(c.n - c.error) + " and " + number.format(c.n) : "" };
}

function denier(c) {
  if (c.listed) return { button: "listed" };
  return { button: "deny", title: "deny " + c.name + " for 10 minutes", done: "listed",
    act: async () => await ask("Deny " + c.name + " for 10 minutes?" + (c.agents > FEW ? " " + many(c) : "")) &&
      change("POST", { id: c.id, name: c.name, for: "10m" }) };
}

function why(c) {
  return { button: "why", title: "why " + c.name + " is denied, or not", act: () => explain("id", c.id) };
}

// A caller with more agents than a person has may be an office.
const FEW = 5;
function many(c) {
  return "It showed about " + c.agents + " user agents and " + c.paths + " paths lately: it may be many people.";
}

// A share of the upstream's time, and one of a caller's requests, that stand out.
const LARGE = .1, MOST = .5;
const warned = (yes) => yes ? "warn" : "";

// stands says what of a caller stands out, where the columns that show it are not in sight.
function stands(c) {
  return [c.upstream >= LARGE && percent(c.upstream) + " of the upstream's time", c.turned >= MOST && percent(c.turned) + " turned away",
    c.failed >= .05 && percent(c.failed) + " failed", c.agents > FEW && c.agents + " agents, " + number.format(c.paths) + " paths"].filter(Boolean).join(", ");
}

function percent(share) {
  return share === 0 ? "" : share < .01 ? "< 1 %" : Math.round(100 * share) + " %";
}

function busiest(all) {
  $("busiest-card").hidden = !all;
  if (!all) return;
  const stake = (c) => Math.max(c.share, c.upstream), most = Math.max(.01, ...all.map(stake));
  fill($("busiest").tBodies[0], all, (c) => c.id, (c) => [
    { text: cut(c.name), title: c.name, className: "name", stands: stands(c), bar: 100 * stake(c) / most },
    count(c), denier(c), why(c), { text: percent(c.share), title: "of all requests" }, { text: percent(c.denied) },
    { text: percent(c.turned), className: warned(c.turned >= MOST) }, { text: percent(c.failed), className: c.failed >= .05 ? "no" : "" },
    { text: percent(c.upstream), className: warned(c.upstream >= LARGE) },
    { text: number.format(c.agents), title: c.agents > FEW ? many(c) : "", className: warned(c.agents > FEW) },
    { text: number.format(c.paths) },
  ]);
  $("busiest-none").hidden = all.length > 0;
  $("busiest").hidden = all.length === 0;
}

// near shows the callers of a prefix as one.
function near(all) {
  $("near-card").hidden = !all?.length;
  fill($("near").tBodies[0], all || [], (g) => g.name, (g) => [
    { text: g.name, className: "name", stands: stands(g) }, { text: number.format(g.callers) },
    g.listed ? { button: "listed" } : { button: "deny", title: "deny " + g.name + " for 10 minutes", done: "listed",
      act: async () => await ask("Deny " + g.name + " for 10 minutes? It has " + g.callers + " callers lately" + (g.quiet ? ", of which " + g.quiet + " sent little and may be others." : ".")) &&
        change("POST", { prefix: g.name, name: g.name, for: "10m" }) },
    { text: number.format(g.quiet) }, { text: number.format(g.n) }, { text: percent(g.share) }, { text: percent(g.denied) },
    { text: percent(g.turned), className: warned(g.turned >= MOST) }, { text: percent(g.failed), className: g.failed >= .05 ? "no" : "" },
    { text: percent(g.upstream), className: warned(g.upstream >= LARGE) }, { text: number.format(g.agents) }, { text: number.format(g.paths) },
  ]);
}

function worst(rows, now, proxies) {
  const most = rows.length ? rows[0].n : 1;
  fill($("worst").tBodies[0], rows, (c) => c.id, (c) => [
    { text: cut(c.name), title: c.name, className: "name", bar: 100 * c.n / most },
    count(c), proxies ? denier(c) : { text: "" }, why(c), { text: percent(c.share), title: "of all denials" },
    { text: now - c.last < 5000 ? "now" : span(now - c.last), title: at(c.last) },
  ]);
  $("worst-none").hidden = rows.length > 0;
  $("worst").hidden = rows.length === 0;
}

function list(rows, total, now) {
  fill($("list").tBodies[0], rows, (e) => e.id ? "key " + e.id : e.prefix, (e) => [
    { text: cut(e.name), title: e.kind + " " + e.name, className: "name" },
    { button: "remove", title: "take " + e.name + " off the list", done: "removed",
      act: () => change("DELETE", e.id ? { id: e.id } : { prefix: e.prefix }) },
    { text: e.kind + ", by " + e.by, className: "left" },
    { text: number.format(e.stops) + (e.agents > FEW ? ", " + e.agents + " agents" : ""), className: e.agents > FEW ? "warn" : "",
      title: "callers of the last minute" + (e.agents > FEW ? ". " + many(e) : "") },
    { text: e.until ? "in " + span(e.until - now) : "never", title: e.until ? at(e.until) : "" },
  ], "removed");
  text("listed-of", total > rows.length ? "the first " + rows.length + " of " + number.format(total) : total || "");
  $("list-none").hidden = total > 0;
  $("list").hidden = total === 0;
}

function deciding(rows, now) {
  $("deciding").hidden = !rows;
  const who = { redis: "Redis", local: "this process, for its share", open: "nobody: all pass", closed: "nobody: none passes" };
  fill($("deciding").querySelector("tbody"), rows || [], (d) => d.limit, (d) => [
    { text: d.limit, className: "name" },
    { text: who[d.source], className: "left " + (d.source === "redis" ? "ok" : "no") },
    { text: d.breaker + " for " + span(now - d.since), className: "left" },
    { text: number.format(d.counts.primary + d.counts.lease + d.counts.denials) },
    { text: number.format(d.counts.local + d.counts.on_fail) },
    { text: number.format(d.counts.outages) },
    { text: number.format(d.counts.carried_back) },
  ]);
}

function show(s) {
  const proxies = s.limits !== undefined; // or it answers Envoy
  document.title = s.program;
  text("program", s.program);
  for (const id of ["list-card", "in-flight-card", "buckets-card"]) $(id).hidden = !proxies;
  for (const id of ["latency-card", "errors-card", "lost"]) $(id).hidden = !s.upstream;
  $("sums").classList.toggle("alone", !s.upstream);
  $("limits-card").hidden = !proxies || !!s.rules;
  $("why-what").placeholder = proxies && $("why-by").value === "key" ? "why is it denied? address or key" : "KEY=VALUE,…";
  const local = (s.deciding || []).some((d) => d.source !== "redis"), ill = illness(s.service);
  text("state", s.stopping ? "stopping" : local ? "Redis is down" : ill || (s.deciding ? "deciding with Redis" : "up for " + span(s.now - s.started)));
  $("state").className = "chip " + (s.stopping || local || ill ? "down" : "up");
  $("shadow").hidden = !s.shadow;
  text("about", !proxies ? "answers Envoy by rules" : s.upstream ? "in front of " + s.upstream : "without an upstream: requests get a built-in page");
  service(s);
  if (proxies) counters(s.table);
  full(s.overload);
  const { admitted = 0, denied = 0, listed = 0, bypassed = 0, failed = 0, "no key": unkeyed = 0 } = s.requests;
  const undecided = bypassed + failed + unkeyed;
  text("undecided", number.format(undecided));
  text("undecided-of", undecided === 0 ? "not decided: no key, or the limiter failed" : "not decided: " + number.format(unkeyed) + " without a key, " +
    number.format(failed) + " refused and " + number.format(bypassed) + " let through as the limiter failed");
  text("totals", number.format(admitted + bypassed) + " admitted and " + number.format(denied + listed) + " denied since the start");
  chart(s.per_second, s.service?.seconds.gave_up);
  slowness(s.service?.seconds || {});
  busiest(s.busiest);
  near(s.near);
  text("worst-of", "by denials " + $("window").selectedOptions[0].textContent.replace("of", "in"));
  deciding(s.deciding, s.now);
  worst(s.worst, s.now, proxies);
  if (proxies) list(s.deny_list, s.listed, s.now);
  ruled(s.rules, s.now);
  tries(s.try, s.now);
  $("why-by").hidden = !s.rules || !proxies;
  fill($("sums").tBodies[0], [["in the last minute", s.minute], ["in the last hour", s.hour], ["since the start", s.total]],
    ([name]) => name, ([name, n]) => [{ text: name }, { text: number.format(n.admitted) },
      { text: number.format(n.errors), className: n.errors ? "no" : "" }, { text: number.format(n.denied) }, { text: number.format(n.failed) }]);
  if (!proxies) return;
  text("by", "callers told apart by " + s.by);
  const limits = s.limits || [];
  const routed = limits.some((l) => l.route);
  fill($("limits").tBodies[0], limits, (_, i) => i, (l) => [
    { text: l.name, className: "name" },
    { text: l.limit, className: "left" },
    { text: l.strategy, className: "left" },
    { text: l.strategy ? number.format(l.at_once) : "", title: "the most that a caller gets within a moment" },
    { text: l.route || (routed ? "all others" : "all"), className: "left" },
    { text: l.strategy ? number.format(l.requests) : "", title: "of the route" },
    { text: l.strategy ? number.format(l.denied) : "", title: "by this limit" },
  ]);
}

function tries(t, now) {
  $("try-card").hidden = !t;
  if (!t) return;
  text("try-about", t.limits.map((l) => l.limit + " by " + l.strategy).join(" and ") + " would deny " + number.format(t.denied) + " of " +
    number.format(t.requests) + " requests, of " + number.format(t.callers) + (t.callers < 1000 ? "" : " or more") + " callers, and denies nobody");
  const most = t.worst.length ? t.worst[0].n : 1;
  fill($("try").tBodies[0], t.worst, (c) => c.id, (c) => [
    { text: cut(c.name), title: c.name, className: "name", bar: 100 * c.n / most },
    { text: (c.error ? "≤ " : "") + number.format(c.n) },
    { text: now - c.last < 5000 ? "now" : span(now - c.last), title: at(c.last) },
  ]);
  $("try").hidden = t.worst.length === 0;
  $("try-none").hidden = t.worst.length > 0;
}

// explain shows why a caller is denied, or is not; by is the name of the parameter that names it. It is shown again
// as long as it is open, unless a part of it is selected.
let explained; // what is shown
async function explain(by, what) {
  explained = null;
  if (!await because(by, what)) return;
  if (by !== "id") return;
  $("why-what").value = $("because-name").textContent;
  $("because").scrollIntoView({ block: "nearest" });
}

async function again() {
  if (explained && getSelection().isCollapsed && !$("because").matches(":has(:focus-visible)")) await because(...explained);
}

async function because(by, what) {
  const r = await fetch("/-/explain?" + new URLSearchParams({ [by]: what }), { cache: "no-store" })
    .catch((e) => ({ ok: false, text: async () => e.message }));
  $("why-error").hidden = r.ok;
  $("because").hidden = !r.ok;
  if (!r.ok) {
    explained = null;
    text("why-error", await r.text());
    return false;
  }
  const x = await r.json();
  explained = [by, what];
  text("because-at", "as of " + new Date(x.now).toLocaleTimeString());
  text("because-name", x.name);
  const denied = x.denials ? ["denials since the start: " + number.format(x.denials - (x.error || 0))] : [];
  text("because-said", [x.says, ...x.notes || [], ...denied].join("; ") + ".");
  rows("holds", x.limits, (h) => [
    [h.name.includes(h.limit) ? h.name : h.name + " " + h.limit, "name"], [h.counting.replace("_", " "), "left"], [number.format(h.at_once)], [h.route || "", "left"],
    [h.error ? "?" : number.format(h.used)], [h.error ? "?" : number.format(h.left)], [h.when]]);
  rows("lately", x.last, (d) => [[clock(d.at, x.now)], [d.of, "left"], [d.limit, "left"]]);
  text("because-steps", x.steps || "");
  $("because-steps").hidden = !x.steps;
  rows("admitted", x.sent?.admitted, (a) => [[clock(a.at, x.now)], [a.of, "left"], [a.agent, "left"]]);
  return true;
}

// rows replaces those of a table that nothing updates.
function rows(id, items, cells) {
  const body = $(id).tBodies[0];
  body.replaceChildren();
  for (const item of items || []) {
    const row = body.insertRow();
    for (const [value, className] of cells(item)) {
      const td = row.insertCell();
      td.className = className || "";
      set(td, value);
    }
  }
  $(id).hidden = !items;
}

// judge has a tile show how its figure is to be taken; the words are for those who see no colours.
const JUDGED = { warn: "warning", bad: "bad" };
function judge(id, state) {
  $(id).closest(".card").dataset.state = state || "";
  $(id).dataset.said = JUDGED[state] || "";
}

function millis(n) {
  return n === 0 ? "–" : n < 1000 ? (n < 10 ? Math.round(n * 10) / 10 : Math.round(n)) + " ms" : Math.round(n / 100) / 10 + " s";
}

function perSecond(n) {
  return number.format(n < 10 ? Math.round(n * 10) / 10 : Math.round(n));
}

// illness says what is bad about the service.
function illness(sv) {
  const words = Object.entries({ latency: "slow", errors: "failing", in_flight: "full" }).filter(([fact]) => sv?.state[fact] === "bad").map(([, word]) => word);
  return words.length ? "the upstream is " + words.join(", ") : "";
}

// service shows how the service does.
function service(s) {
  const last = (series) => series.length ? series[series.length - 1] : 0, of = s.per_second, sv = s.service;
  text("rate", number.format(last(of.admitted) + last(of.denied) + last(of.failed)));
  text("rate-of", "requests a second, " + number.format(last(of.admitted)) + " admitted");
  const all = s.minute.admitted + s.minute.denied + s.minute.failed;
  text("denied", percent(s.minute.denied / Math.max(all, 1)) || "0 %");
  text("denied-of", "denied in the last minute: " + number.format(s.minute.denied));
  judge("denied", sv?.state.denied);
  judge("undecided", s.minute.failed * 20 > all ? "bad" : s.minute.failed * 100 > all ? "warn" : "");
  if (!sv) return;
  const both = (of) => millis(sv["p50" + of]) + " / " + millis(sv["p99" + of]);
  text("latency", both("_now_ms"));
  text("latency-of", "p50 / p99 of the upstream; in the last minute " + both("_ms") + (sv.p50_before_ms ? ", in the one before " + both("_before_ms") : ""));
  judge("latency", sv.state.latency);
  text("errors", perSecond(sv.errors_per_second + sv.gave_up_per_second));
  text("errors-of", "errors a second" + (sv.gave_up_per_second ? ", " + perSecond(sv.gave_up_per_second) + " of them clients that gave up" : ""));
  $("errors-of").title = "5xx or no answer, over the last ten seconds";
  judge("errors", sv.state.errors);
  $("in-flight-card").hidden = !!s.overload;
  text("in-flight", number.format(s.in_flight));
  text("in-flight-of", sv.most_in_flight ? "in flight of at most " + number.format(sv.most_in_flight) : "in flight, a minute ago " + number.format(sv.in_flight_ago));
  judge("in-flight", sv.state.in_flight);
  judge("full", sv.state.in_flight);
}

function counters(table) {
  judge("buckets", table.full ? "bad" : table.buckets >= .8 * table.max_buckets ? "warn" : "");
  text("buckets", number.format(table.buckets));
  text("buckets-of", "of " + number.format(table.max_buckets) + " counters" + (table.full ? ", " + number.format(table.full) + " refused" : ""));
  $("buckets-of").title = number.format(table.sweeps) + " sweeps have removed " + number.format(table.swept) +
    " that had expired; the last one took " + table.last_sweep_ms + " ms";
}

// full shows the requests in flight of how many fit.
function full(o) {
  $("full-card").hidden = !o;
  if (!o) return;
  text("full", number.format(o.in_flight) + " of " + number.format(o.limit));
  const refused = ["sheddable", "normal", "critical"].map((c) => [c, o.refused[c].full + o.refused[c].share]).filter(([, n]) => n > 0);
  text("full-of", "fit; " + o.state + (o.latency_ms ? ": " + millis(o.latency_ms) + " of at most " + millis(o.goal_ms) : "") +
    (refused.length ? "; refused: " + refused.map(([c, n]) => number.format(n) + " " + c).join(", ") : ""));
  const shares = Object.values(o.refused).reduce((n, r) => n + r.share, 0);
  $("full-of").title = number.format(Math.round(o.per_second)) + " requests end in a second; " + number.format(shares) +
    " were refused as the caller held its share; " + (o.learnt && o.goal_ms ? "the goal is learnt: --overload=" + Math.round(o.goal_ms) + "ms keeps it" : "the goal is given");
}

function ruled(r, now) {
  $("rules-card").hidden = !r;
  if (!r) return;
  text("rules-about", number.format(r.count) + (r.domain ? " of domain " + r.domain : "") + ", version " + r.version + ", loaded " +
    span(now - r.loaded) + " ago; loads: " + r.loads + ", refused: " + r.refused + ", warnings: " + r.warnings);
  $("rules-error").hidden = !r.error;
  text("rules-error", r.error ? "Refused " + span(now - r.failed) + " ago; the rules below stay in force: " + r.error : "");
  fill($("rules").tBodies[0], r.top || [], (l) => l.rule, (l) => [
    { text: l.rule, className: "name" },
    { text: l.limit, className: "left" },
    { text: l.counting.replace("_", " "), className: "left" },
    { text: number.format(l.at_once), title: "the most that passes within a moment" },
    { text: number.format(l.hits) },
    { text: number.format(l.near), title: "within the limit, over 0.8 of it" },
    { text: number.format(l.over) },
    { text: number.format(l.shadowed) },
    { text: number.format(l.lost), title: "of denied requests, which a rule that is peeked at does not count" },
  ]);
}

// parts shows the links to the parts that are there.
function parts() {
  for (const a of document.querySelectorAll("nav a")) a.hidden = a !== document.activeElement && document.querySelector(a.hash).hidden;
}

// steady shows the figures and scrolls by what the row under the pointer, or the focused one, has moved meanwhile.
function steady(s) {
  const row = document.querySelector("tbody tr:hover") || document.activeElement.closest("tr"), top = row?.getBoundingClientRect().top;
  show(s);
  parts();
  if (row?.isConnected) scrollBy(0, row.getBoundingClientRect().top - top);
  for (const box of document.querySelectorAll(".scroll")) box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1);
}

async function look() {
  try {
    const r = await fetch("/-/stats?window=" + $("window").value, { cache: "no-store" });
    if (!r.ok) throw new Error(r.status + " " + r.statusText);
    steady(await r.json());
  } catch (e) {
    text("state", "no answer: " + e.message);
    $("state").className = "chip down";
  }
}

$("deny").onsubmit = async (event) => {
  event.preventDefault();
  const body = { what: $("deny-what").value };
  if ($("deny-for").value) body.for = $("deny-for").value;
  if (await change("POST", body)) $("deny-what").value = "";
};

$("why").onsubmit = (event) => {
  event.preventDefault();
  explain($("why-by").hidden ? "key" : $("why-by").value, $("why-what").value.trim());
};

for (const [id, yes] of [["ask-yes", true], ["ask-no", false]]) {
  $(id).onclick = () => {
    $("ask").close();
    answer(yes);
  };
}
$("ask").oncancel = () => answer(false);

$("window").onchange = () => {
  for (const id of ["busiest", "near", "worst"]) $(id).tBodies[0].replaceChildren();
  look();
};

let paused = false;
$("pause").onclick = () => {
  paused = !paused;
  $("pause").ariaPressed = String(paused);
  text("pause", paused ? "Paused at " + new Date().toLocaleTimeString() + ": go on" : "Pause");
};

$("confirm-cancel").onclick = () => { $("confirm").hidden = $("deny-error").hidden = true; };

(async function watch() {
  if (!paused) {
    await look();
    await again();
  }
  setTimeout(watch, document.hidden ? 5000 : 1000);
})();
