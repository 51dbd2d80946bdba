"use strict";
// The tables are sorted by a press on the head of a column, and a command is copied by one on its button.
const value = (row, i) => row.cells[i].textContent.trim();
const amount = (text) => parseFloat(text.replace(/[,<>≤ ]/g, ""));

// before compares two cells, the greater first: by their amounts if both are that, else as texts.
const number = /^[<>≤]?\s*\d[\d,. ]*%?$/;
function before(a, b) {
  return number.test(a) && number.test(b) ? amount(b) - amount(a) : b.localeCompare(a);
}

for (const head of document.querySelectorAll("thead th")) {
  const table = head.closest("table"), i = head.cellIndex, rows = () => [...table.tBodies[0].rows];
  if (rows().length < 2 || rows().some((row) => row.cells.length <= i)) continue;
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  button.onclick = () => {
    const turn = head.ariaSort === "descending" ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.ariaSort = turn > 0 ? "descending" : "ascending";
    table.tBodies[0].append(...rows().sort((a, b) => turn * before(value(a, i), value(b, i))));
  };
}

for (const code of document.querySelectorAll(".next code, .slide code")) {
  const button = document.createElement("button");
  button.textContent = "copy";
  button.onclick = async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  };
  code.after(button);
}

const grouped = (n) => Number(n).toLocaleString("en-US");

// A slider for each curve of the page: only points that were computed can be chosen.
for (const curve of document.querySelectorAll(".curve")) {
  const { points, callers, per, limit, command } = curve.dataset;
  const all = points.split(" ").map((point) => point.split(":").map(Number));
  const slider = curve.querySelector("input"), said = curve.querySelector("output"), code = curve.querySelector("code");
  const chosen = all.findIndex(([n]) => String(n) === limit);
  const show = () => {
    const [n, denied] = all[slider.value], share = 100 * denied / callers;
    said.textContent = slider.ariaValueText = n + "/" + per + " denies a request to " + grouped(denied) + " of " + grouped(callers) + " callers (" +
      (share < 1 ? share.toPrecision(1) : share.toFixed(1)) + " %)";
    code.textContent = command.replace(limit + "/" + per, n + "/" + per);
  };
  slider.max = all.length - 1;
  slider.value = Math.max(chosen, 0);
  slider.oninput = show;
  curve.querySelector(".slide").hidden = false;
  code.hidden = code.nextElementSibling.hidden = !command;
  show();
}
