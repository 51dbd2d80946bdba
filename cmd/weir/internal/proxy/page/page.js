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

function text(id, value) {
  if ($(id).textContent !== String(value)) $(id).textContent = value;
}

function cell(row, value, className) {
  const td = row.insertCell();
  td.textContent = value;
  if (className) td.className = className;
  return td;
}

function button(cell, label, title, act) {
  const b = document.createElement("button");
  b.textContent = label;
  b.title = title;
  b.onclick = act;
  cell.append(b);
}

// fill rebuilds the rows of a table, unless nothing has changed, so that a button is not replaced while it is clicked.
function fill(body, rows, build) {
  const state = JSON.stringify(rows);
  if (body.dataset.state === state) return;
  body.dataset.state = state;
  body.replaceChildren();
  for (const r of rows) build(body.insertRow(), r);
}

// span writes a time as a person would.
function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return s + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 129600) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
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

function chart(series) {
  const svg = $("chart"), width = svg.clientWidth || 1080, left = 46, right = width - 10, top = 10, bottom = 214;
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
  const shown = SPANS.find((span) => span.at[0] >= series.admitted.length), seconds = shown.at[0];
  text("history", "The last " + shown.name);
  const step = (right - left) / seconds;
  for (const s of shown.at) {
    draw(svg, "text", { x: right - s * step, y: bottom + 20, "text-anchor": s === seconds ? "start" : s === 0 ? "end" : "middle" },
      s === 0 ? "now" : s % 60 === 0 ? "−" + s / 60 + " min" : "−" + s + " s");
  }
  const offset = seconds - series.admitted.length;
  series.admitted.forEach((a, i) => {
    const d = series.denied[i], x = left + (offset + i) * step;
    if (a + d === 0) return;
    const g = draw(svg, "g", {});
    draw(g, "title", {}, a + " admitted, " + d + " denied");
    if (a > 0) draw(g, "rect", { x, width: step > 3 ? step - .8 : step, y: y(a), height: bottom - y(a), class: "a" });
    if (d > 0) draw(g, "rect", { x, width: step > 3 ? step - .8 : step, y: y(a + d), height: y(a) - y(a + d), class: "d" });
  });
}

async function change(method, body) {
  $("deny-error").hidden = true;
  const r = await fetch("/-/deny", {
    method, body: JSON.stringify(body), headers: { "Content-Type": "application/json", "Weir-Admin": "1" },
  }).catch((e) => ({ ok: false, text: async () => e.message }));
  if (!r.ok) {
    text("deny-error", await r.text());
    $("deny-error").hidden = false;
    return false;
  }
  await look();
  return true;
}

function worst(rows, now) {
  const most = rows.length ? rows[0].n : 1;
  fill($("worst").tBodies[0], rows.map((c) => ({ ...c, last: now - c.last < 5000 ? "now" : span(now - c.last) })), (row, c) => {
    const name = cell(row, c.name, "name");
    const bar = document.createElement("span");
    bar.className = "bar";
    bar.style.width = 100 * c.n / most + "%";
    name.append(bar);
    const n = cell(row, (c.error ? "≤ " : "") + number.format(c.n));
    if (c.error) n.title = "between " + number.format(c.n - c.error) + " and " + number.format(c.n);
    cell(row, c.last);
    const action = cell(row, "");
    if (c.listed) action.textContent = "listed";
    else button(action, "deny", "deny for 10 minutes", () => change("POST", { id: c.id, for: "10m" }));
  });
  $("worst-none").hidden = rows.length > 0;
  $("worst").hidden = rows.length === 0;
}

function list(rows, total, now) {
  fill($("list").tBodies[0], rows.map((e) => ({ ...e, until: e.until ? "in " + span(e.until - now) : "never" })), (row, e) => {
    cell(row, e.name, "name");
    cell(row, e.until);
    button(cell(row, ""), "remove", "take " + e.name + " off the list",
      () => change("DELETE", e.id ? { id: e.id } : { prefix: e.prefix }));
  });
  text("listed-of", total > rows.length ? "the first " + rows.length + " of " + number.format(total) : total || "");
  $("list-none").hidden = total > 0;
  $("list").hidden = total === 0;
}

function deciding(rows, now) {
  $("deciding").hidden = !rows;
  fill($("deciding").querySelector("tbody"), (rows || []).map((d) => ({ ...d, since: span(now - d.since) })), (row, d) => {
    const c = d.counts;
    cell(row, d.limit, "name");
    const who = { redis: "Redis", local: "this process, for its share", open: "nobody: all pass", closed: "nobody: none passes" };
    cell(row, who[d.source], "left " + (d.source === "redis" ? "ok" : "no"));
    cell(row, d.breaker + " for " + d.since, "left");
    cell(row, number.format(c.primary + c.lease + c.denials));
    cell(row, number.format(c.local + c.policy));
    cell(row, number.format(c.outages));
    cell(row, number.format(c.carried_back));
  });
}

function show(s) {
  const local = (s.deciding || []).some((d) => d.source !== "redis");
  text("state", s.stopping ? "stopping" : local ? "Redis is down" : s.deciding ? "deciding with Redis" : "up for " + span(s.now - s.started));
  $("state").className = "chip " + (s.stopping || local ? "down" : "up");
  $("shadow").hidden = !s.shadow;
  text("about", s.upstream ? "in front of " + s.upstream : "without an upstream: requests get a built-in page");
  const last = (series) => series.length ? number.format(series[series.length - 1]) : "0";
  text("admitted-rate", last(s.per_second.admitted));
  text("denied-rate", last(s.per_second.denied));
  text("in-flight", number.format(s.in_flight));
  text("buckets", number.format(s.table.buckets));
  text("buckets-of", "of " + number.format(s.table.max_buckets) + " counters" + (s.table.full ? ", " + number.format(s.table.full) + " refused" : ""));
  $("buckets-of").title = number.format(s.table.sweeps) + " sweeps have removed " + number.format(s.table.swept) +
    " that had expired; the last one took " + s.table.last_sweep_ms + " ms";
  const { admitted, denied, listed, bypassed, failed, "no key": unkeyed } = s.requests, undecided = bypassed + failed + unkeyed;
  text("undecided", number.format(undecided));
  text("undecided-of", undecided === 0 ? "not decided: no key, or the limiter failed" : "not decided: " + number.format(unkeyed) + " without a key, " +
    number.format(failed) + " refused and " + number.format(bypassed) + " let through as the limiter failed");
  text("totals", number.format(admitted + bypassed) + " admitted and " + number.format(denied + listed) + " denied since the start");
  chart(s.per_second);
  deciding(s.deciding, s.now);
  worst(s.worst, s.now);
  list(s.deny_list, s.listed, s.now);
  ruled(s.rules, s.now);
  text("by", "callers told apart by " + s.by);
  const limits = s.limits || [];
  const routed = limits.some((l) => l.route);
  fill($("limits").tBodies[0], limits, (row, l) => {
    cell(row, l.name, "name");
    cell(row, l.limit, "left");
    cell(row, l.strategy, "left");
    cell(row, l.route || (routed ? "all others" : "all"), "left");
  });
}

function ruled(r, now) {
  $("rules-card").hidden = !r;
  $("limits-card").hidden = !!r;
  if (!r) return;
  text("rules-about", number.format(r.count) + " of domain " + r.domain + ", version " + r.version + ", loaded " + span(now - r.loaded) + " ago");
  $("rules-error").hidden = !r.error;
  text("rules-error", r.error ? "Refused " + span(now - r.failed) + " ago; the rules below stay in force: " + r.error : "");
  fill($("rules").tBodies[0], r.top, (row, l) => {
    cell(row, l.rule, "name");
    cell(row, l.limit, "left");
    cell(row, number.format(l.hits));
    cell(row, number.format(l.over));
    cell(row, number.format(l.shadowed));
  });
}

async function look() {
  try {
    const r = await fetch("/-/stats", { cache: "no-store" });
    if (!r.ok) throw new Error(r.status + " " + r.statusText);
    show(await r.json());
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

(async function watch() {
  await look();
  setTimeout(watch, document.hidden ? 5000 : 1000);
})();
