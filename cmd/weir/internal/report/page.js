"use strict";
// A slider for each curve of the page: only points that were computed can be chosen.
for (const curve of document.querySelectorAll(".curve")) {
  const { points, callers, per, limit, command } = curve.dataset;
  const all = points.split(" ").map((point) => point.split(":").map(Number));
  const slider = curve.querySelector("input"), said = curve.querySelector("output"), code = curve.querySelector("code");
  const chosen = all.findIndex(([n]) => String(n) === limit);
  const show = () => {
    const [n, denied] = all[slider.value], share = 100 * denied / callers;
    said.textContent = slider.ariaValueText = n + "/" + per + " denies a request to " + denied + " of " + callers + " callers (" +
      (share < 1 ? share.toPrecision(1) : share.toFixed(1)) + " %)";
    code.textContent = command.replace(limit + "/" + per, n + "/" + per);
  };
  slider.max = all.length - 1;
  slider.value = Math.max(chosen, 0);
  slider.oninput = show;
  curve.querySelector(".slide").hidden = false;
  code.hidden = !command;
  show();
}
