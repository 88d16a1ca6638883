"use strict";
// Shows the values of curves, by pointer, touch or arrow keys. The page also works without this script.
(() => {
  const { methods, panels } = JSON.parse(document.getElementById("readings").textContent);
  const tip = document.getElementById("tip");
  const MOST = 8; // maximum number of methods in the tip: those nearest to the pointer
  const COLOURS = 8; // number of colours in page.css

  const shown = (index) => {
    const box = document.getElementById(`m${index}`);
    return box === null || box.checked;
  };

  const number = (value) => {
    const size = Math.abs(value);
    if (size >= 1e8 || (size > 0 && size < 5e-4)) return value.toExponential(2);
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 6 : 4 });
  };

  // Returns the value of a curve at x by linear interpolation, or null outside of the curve.
  const at = (xs, ys, x) => {
    const after = xs.findIndex((one) => one >= x);
    if (after < 0 || ys[after] === null) return null;
    if (xs[after] === x) return ys[after];
    if (after === 0) return null;
    const part = (x - xs[after - 1]) / (xs[after] - xs[after - 1]);
    return ys[after - 1] + part * (ys[after] - ys[after - 1]);
  };

  const visible = (panel) => panel.curves.filter(([index]) => shown(index));

  // Returns the rows of the tip: the shown methods whose values at step x are nearest to y = height, the highest first.
  const rows = (panel, x, height) => {
    const found = [];
    for (const [index, xs, ys, low, high] of visible(panel)) {
      const y = at(xs, ys, x);
      if (y !== null) found.push({ index, y, low: at(xs, low, x), high: at(xs, high, x) });
    }
    found.sort((a, b) => Math.abs(a.y - height) - Math.abs(b.y - height));
    const near = found.slice(0, MOST);
    if (near.length > 0) near[0].near = true;
    return near.sort((a, b) => b.y - a.y);
  };

  const cell = (row, tag, text) => {
    const made = row.appendChild(document.createElement(tag));
    made.textContent = text;
    return made;
  };

  const fill = (panel, x, height) => {
    const table = document.createElement("table");
    for (const { index, y, low, high, near } of rows(panel, x, height)) {
      const row = table.insertRow();
      if (near) row.className = "near";
      const name = cell(row, "th", methods[index]);
      const dot = document.createElement("i");
      dot.className = `c${index % COLOURS}`;
      name.prepend(dot);
      cell(row, "td", number(y));
      cell(row, "td", low === null ? "too few runs" : `${number(low)} to ${number(high)}`);
    }
    const head = document.createElement("div");
    head.textContent = `${panel.label}: ${x.toLocaleString("en", { maximumFractionDigits: 3 })}`;
    tip.replaceChildren(head, table);
  };

  // `scale` returns the value at a fraction of the way from low to high, `share` the fraction of a value.
  const scale = ([low, high], share) => low + share * (high - low);
  const share = ([low, high], value) => (value - low) / (high - low);
  const along = ({ x, log }, step) => (log ? share(x.map(Math.log), Math.log(step)) : share(x, step));

  const clear = () => {
    tip.hidden = true;
    document.querySelectorAll("line.cross").forEach((line) => line.remove());
  };

  const show = (plot, panel, x, height) => {
    clear();
    const box = plot.getBoundingClientRect();
    const across = along(panel, x);
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cross.setAttribute("class", "cross");
    for (const [name, value] of [["x1", across], ["x2", across], ["y1", 0], ["y2", 1]]) {
      cross.setAttribute(name, `${100 * value}%`);
    }
    plot.append(cross);
    fill(panel, x, height);
    tip.hidden = false;
    const { width, height: tall } = tip.getBoundingClientRect();
    const place = box.left + across * box.width;
    const right = place + 14 + width <= innerWidth - 8;
    const left = place - 14 - width >= 8;
    const middle = box.top + (1 - share(panel.y, height)) * box.height - tall / 2;
    const top = right || left ? middle : box.bottom + 24; // below the plot if there is no room next to the line
    tip.style.left = `${Math.max(8, right ? place + 14 : place - 14 - width)}px`;
    tip.style.top = `${Math.max(8, Math.min(top, innerHeight - 8 - tall))}px`;
  };

  // Returns the evaluated step of any shown curve that is nearest to the pointer, in pixels.
  const nearest = (panel, box, across, down) => {
    let best = null;
    for (const [, xs, ys] of visible(panel)) {
      xs.forEach((x, index) => {
        const right = (along(panel, x) - across) * box.width;
        const below = (1 - share(panel.y, ys[index]) - down) * box.height;
        const distance = Math.abs(right) + 0.25 * Math.abs(below);
        if (best === null || distance < best.distance) best = { x, distance };
      });
    }
    return best && best.x;
  };

  const point = (plot, panel, event) => {
    const box = plot.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width;
    const down = (event.clientY - box.top) / box.height;
    const x = nearest(panel, box, across, down);
    if (x === null) clear();
    else show(plot, panel, x, scale(panel.y, 1 - down));
  };

  // Arrow keys move to the previous or next evaluated step.
  const press = (plot, panel, state, event) => {
    const steps = [...new Set(visible(panel).flatMap(([, xs]) => xs))].sort((a, b) => a - b);
    const here = state.x === null ? -1 : steps.findIndex((step) => step >= state.x);
    const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: steps.length - 1 };
    if (event.key === "Escape") clear();
    if (!(event.key in moves) || steps.length === 0) return;
    event.preventDefault();
    state.x = steps[Math.max(0, Math.min(moves[event.key], steps.length - 1))];
    show(plot, panel, state.x, scale(panel.y, 0.5));
  };

  for (const plot of document.querySelectorAll("[data-reading]")) {
    const panel = panels[plot.dataset.reading];
    const state = { x: null };
    plot.setAttribute("tabindex", "0");
    plot.addEventListener("pointermove", (event) => point(plot, panel, event));
    plot.addEventListener("pointerdown", (event) => point(plot, panel, event));
    plot.addEventListener("pointerleave", clear);
    plot.addEventListener("blur", clear);
    plot.addEventListener("keydown", (event) => press(plot, panel, state, event));
  }
  addEventListener("scroll", clear, { passive: true });

  const none = document.getElementById("none");
  if (none !== null) {
    none.hidden = false;
    none.addEventListener("click", () => {
      document.querySelectorAll(".key input").forEach((box) => (box.checked = false));
    });
  }
  document.querySelectorAll(".hint").forEach((hint) => (hint.hidden = false));
})();
