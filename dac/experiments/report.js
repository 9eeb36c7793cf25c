// Brings a report to life: curves, heat maps, tables to sort, commands to copy. No libraries and no network:
// all it draws is in <script id="data">, and all that matters can be read without it.
"use strict";
(() => {
  const DASHES = ["", "8 3", "2.5 2.5", "9 3 2.5 3", "16 3", "5 2 2 2 2 2"]; // beside colours, not all see these
  const MAGMA = "000004 140e36 3b0f70 641a80 8c2981 b73779 de4968 f7705c fe9f6d fecf92 fcfdbf".split(" ");
  const WALL = [138, 141, 145];
  const SVG = new Set(["svg", "g", "path", "line", "text", "circle"]);
  const data = JSON.parse(document.getElementById("data").textContent);
  const colours = []; // in order of appearance: a colour has the same dashes in every chart

  const present = (value) => value != null;
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const notice = (text) => el("p", { class: "missing" }, text);

  function el(tag, attributes = {}, ...children) {
    const svg = SVG.has(tag) && "http://www.w3.org/2000/svg";
    const node = svg ? document.createElementNS(svg, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (present(value)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function caption(figure, title) {
    if (!figure.querySelector("figcaption")) figure.append(el("figcaption", {}, title));
  }

  function number(value, digits = 0) {
    const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    return value.toLocaleString("en-GB", format).replace("-", "\u2212");
  }

  // Four significant digits, and as many decimals for the deviation as for the mean.
  function spread(mean, std) {
    const size = Math.max(Math.abs(mean), Math.abs(std ?? 0));
    const digits = size ? clamp(3 - Math.floor(Math.log10(size)), 0, 8) : 0;
    return number(mean, digits) + (present(std) ? ` ± ${number(std, digits)}` : "");
  }

  // What a curve says at one of its points: mean and deviation, or mean and the ends of its own band.
  function reads(s, i) {
    if (s.std || !present(s.low[i])) return spread(s.mean[i], s.std?.[i]);
    return `${spread(s.mean[i])} [${number(s.low[i], 2)}, ${number(s.high[i], 2)}]`;
  }

  function extent(lists) {
    let [low, high] = [Infinity, -Infinity];
    for (const list of lists)
      for (const value of list) if (present(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
    return [low, high];
  }

  function nearest(list, value) {
    let best = 0;
    for (let i = 1; i < list.length; i++) if (Math.abs(list[i] - value) < Math.abs(list[best] - value)) best = i;
    return best;
  }

  // Round numbers between low and high, about `count` of them, each with its label (10k, 2.5M).
  function ticks(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
    const values = [];
    for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step * 1e-6; i++) values.push(i * step);
    const top = Math.max(...values.map(Math.abs));
    const [unit, suffix] = top >= 1e6 ? [1e6, "M"] : top >= 1e4 ? [1e3, "k"] : [1, ""];
    const exact = (n) => Math.abs((step / unit).toFixed(n) * unit - step) < step / 1000;
    const digits = [0, 1, 2, 3, 4, 5, 6, 7].find(exact) ?? 8;
    return values.map((value) => [value, value ? number(value / unit, digits) + suffix : "0"]);
  }

  // Runs of neighbouring points where a value is there: a line goes through each, gaps stay gaps.
  function runs(values) {
    const found = [];
    values.forEach((value, i) => {
      if (present(value) && i && present(values[i - 1])) found.at(-1).push(i);
      else if (present(value)) found.push([i]);
    });
    return found;
  }

  function chart(figure, spec) {
    caption(figure, spec.title);
    const series = spec.series.map((s, index) => {
      if (!colours.includes(s.colour)) colours.push(s.colour);
      const twins = spec.series.slice(0, index).filter((other) => other.colour === s.colour).length;
      const dash = DASHES[(colours.indexOf(s.colour) + twins) % DASHES.length];
      const off = (sign) => s.mean.map((m, i) => (present(m) && present(s.std?.[i]) ? m + sign * s.std[i] : null));
      const band = { low: s.low ?? off(-1), high: s.high ?? off(1) }; // a band of its own, or one standard deviation
      return { ...s, ...band, dash, seeds: Object.values(s.seeds ?? {}), shown: true };
    });
    if (!series.some((s) => s.mean.some(present))) return figure.append(notice("No data for this chart yet."));

    const svg = el("svg", { role: "img", "aria-label": `${spec.title}: ${series.map((s) => s.name).join(", ")}` });
    const tip = el("div", { class: "tip", role: "status", hidden: "" });
    const help = `${spec.title}. Left and right arrows read the values, up and down choose a curve.`;
    const plot = el("div", { class: "plot", tabindex: 0, role: "group", "aria-label": help }, svg, tip);
    const legend = el("div", { class: "legend", role: "group", "aria-label": "Curves shown" });
    const swatch = (s) =>
      el("svg", { class: "swatch", width: 26, height: 8, "aria-hidden": "true", style: `--c:${s.colour}` },
        el("line", { x1: 1, x2: 25, y1: 4, y2: 4, class: "mean", "stroke-dasharray": s.dash }));
    for (const s of series) {
      s.button = el("button", { type: "button", "aria-pressed": "true" }, swatch(s), el("span", {}, s.label ?? s.name));
      s.button.addEventListener("click", () => show(s, !s.shown));
      for (const kind of ["pointerenter", "focus"]) s.button.addEventListener(kind, () => s.shown && point(null, s));
      for (const kind of ["pointerleave", "blur"])
        s.button.addEventListener(kind, () => cursor == null && point(null, null)); // not what keys have set since
      legend.append(s.button);
    }
    const [fewest, most] = extent([series.map((s) => s.seeds.length).filter(Boolean)]);
    const over = most > 0 ? ` over ${fewest < most ? `${fewest} to ` : ""}${most} seed${most > 1 ? "s" : ""}` : "";
    const hint = el("span", { class: "hint" }, " Point at a curve for its seeds; press a name to hide it.");
    const note = spec.note ?? `Mean and one standard deviation${over}.`;
    figure.append(legend, plot, el("p", { class: "soft note" }, note, hint));

    let width, X, Y, toX, steps, layer, cursorLayer, references; // of what is drawn
    let [cursor, active] = [null, null]; // a step and a curve
    const shown = () => series.filter((s) => s.shown);

    function layout() {
      width = plot.clientWidth || 640;
      const height = Math.round(clamp(width * 0.46, 230, 400));
      const used = shown().length ? shown() : series;
      steps = [...new Set(shown().flatMap((s) => s.x))].sort((a, b) => a - b);
      references = (spec.reference ?? []).map((r) => ({ ...r, owner: series.find((s) => s.name === r.series) }));
      references = references.filter((r) => present(r.value) && (r.owner?.shown ?? true));
      let [x0, x1] = extent(used.map((s) => s.x));
      const values = used.flatMap((s) => [s.mean, s.low, s.high, ...s.seeds]); // all of it: the scale does not jump
      let [y0, y1] = extent([...values, references.map((r) => r.value)]);
      if (y0 > y1) [x0, x1, y0, y1] = [0, 1, 0, 1]; // only curves without a value are shown
      if (x0 > 0 && x0 < 0.2 * x1) x0 = 0;
      if (x0 === x1) [x0, x1] = [x0 - (x0 / 2 || 1), x1 + (x1 / 2 || 1)];
      const pad = (y1 - y0) * 0.05 || Math.abs(y0) / 2 || 1;
      [y0, y1] = [y0 >= 0 && y0 < 0.4 * y1 ? 0 : y0 - pad, y1 + pad];
      const yTicks = ticks(y0, y1, clamp(height / 55, 3, 6));
      const left = 12 + 7 * Math.max(...yTicks.map(([, label]) => label.length));
      const [right, top, bottom] = [width - 18, 26, height - 42];
      X = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
      Y = (y) => bottom - ((y - y0) / (y1 - y0)) * (bottom - top);
      toX = (px) => x0 + ((px - left) / (right - left)) * (x1 - x0);
      const at = (x, y) => `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`;
      const join = (s, values, run) => run.map((i) => at(s.x[i], values[i])).join("L");
      const trace = (s, values) => runs(values).map((run) => "M" + join(s, values, run)).join("");

      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.replaceChildren(el("text", { x: 0, y: 12 }, spec.y));
      svg.append(el("text", { class: "middle", x: (left + right) / 2, y: height - 4 }, spec.x));
      for (const [value, label] of yTicks) {
        svg.append(el("line", { class: "grid", x1: left, x2: right, y1: Y(value), y2: Y(value) }));
        svg.append(el("text", { class: "end", x: left - 7, y: Y(value) + 4 }, label));
      }
      svg.append(el("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
      for (const [value, label] of ticks(x0, x1, clamp(width / 95, 3, 8))) {
        svg.append(el("line", { class: "axis", x1: X(value), x2: X(value), y1: bottom, y2: bottom + 4 }));
        svg.append(el("text", { class: "middle", x: X(value), y: bottom + 18 }, label));
      }
      svg.append((layer = el("g")));
      for (const s of shown()) {
        const bands = runs(s.low).map((run) => `M${join(s, s.high, run)}L${join(s, s.low, run.toReversed())}Z`);
        const mean = el("path", { class: "mean", d: trace(s, s.mean), "stroke-dasharray": s.dash });
        s.seedLayer = el("g");
        s.drawSeeds = () => s.seedLayer.append(...s.seeds.map((v) => el("path", { class: "seed", d: trace(s, v) })));
        s.group = el("g", { class: "series", "data-name": s.name, style: `--c:${s.colour}` });
        s.group.append(el("path", { class: "band", d: bands.join("") }), s.seedLayer, mean);
        for (const run of runs(s.mean)) {
          if (run.length > 1) continue; // a point without neighbours has no line to be seen by
          const [x, y] = [s.x[run[0]], s.mean[run[0]]];
          if (present(s.low[run[0]]))
            s.group.append(el("path", { class: "whisker", d: `M${join(s, s.low, run)}L${join(s, s.high, run)}` }));
          s.group.append(el("circle", { class: "dot", cx: X(x), cy: Y(y), r: 3.5 }));
        }
        layer.append(s.group);
      }
      let free = -Infinity; // labels are pushed down until they do not lie over one another
      for (const r of references.sort((a, b) => b.value - a.value)) {
        free = Math.max(free + 13, Y(r.value) - 4);
        const line = el("line", { x1: left, x2: right, y1: Y(r.value), y2: Y(r.value) });
        const label = el("text", { x: left + 6, y: Math.min(free, bottom - 4) }, r.label);
        r.group = el("g", { class: "reference", style: `--c:${r.owner?.colour ?? "currentColor"}` }, line, label);
        svg.append(r.group);
      }
      svg.append((cursorLayer = el("g", { class: "cursor" })));
      cursorLayer.ends = { y1: top - 6, y2: bottom };
      update();
    }

    // What a curve says at the cursor: its nearest point, unless that is more than half its spacing away.
    function reading(s) {
      const i = nearest(s.x, cursor);
      const spacing = (s.x.at(-1) - s.x[0]) / Math.max(1, s.x.length - 1);
      return present(s.mean[i]) && Math.abs(s.x[i] - cursor) <= spacing / 2 ? i : null;
    }

    function update() {
      svg.classList.toggle("focused", active != null);
      for (const s of shown()) s.group.classList.toggle("active", s === active);
      for (const r of references) r.group.classList.toggle("faded", active && r.owner && r.owner !== active);
      if (active && !active.seedLayer.childElementCount) active.drawSeeds();
      if (active) layer.append(active.group); // over the others
      cursorLayer.replaceChildren();
      tip.hidden = cursor == null;
      if (cursor == null) return;
      const x = X(cursor);
      cursorLayer.append(el("line", { x1: x, x2: x, ...cursorLayer.ends }));
      tip.replaceChildren(el("strong", {}, `${number(cursor, Number.isInteger(cursor) ? 0 : 2)} ${spec.x}`));
      for (const s of shown()) {
        const i = reading(s);
        const where = present(i) && s.x[i] !== cursor ? ` at ${number(s.x[i])}` : "";
        const text = present(i) ? reads(s, i) + where : "no value";
        const kind = s === active ? "active" : null;
        tip.append(el("div", { class: kind }, swatch(s), el("span", {}, s.name), el("b", {}, text)));
        const dot = { class: "dot", cx: X(s.x[i]), cy: Y(s.mean[i]), r: 3.5, style: `--c:${s.colour}` };
        if (present(i)) cursorLayer.append(el("circle", dot));
      }
      const wanted = x > width / 2 ? x - 14 - tip.offsetWidth : x + 14; // on the side where there is more room
      tip.style.left = `${clamp(wanted, 0, Math.max(0, width - tip.offsetWidth))}px`;
    }

    function point(step, curve) {
      [cursor, active] = [step, curve];
      update();
    }

    function show(s, value) {
      s.shown = value;
      s.button.setAttribute("aria-pressed", value);
      [cursor, active] = [null, null];
      layout();
    }

    function follow(event) {
      if (!steps.length) return;
      const box = svg.getBoundingClientRect();
      cursor = steps[nearest(steps, toX(((event.clientX - box.left) * width) / box.width))];
      const y = ((event.clientY - box.top) * width) / box.width;
      const read = shown().filter((s) => present(reading(s)));
      point(cursor, read[nearest(read.map((s) => Y(s.mean[reading(s)])), y)] ?? null);
    }

    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && point(null, null));
    plot.addEventListener("blur", () => point(null, null));
    plot.addEventListener("keydown", (event) => {
      const [curves, last, by] = [shown(), steps.length - 1, event.shiftKey ? 10 : 1];
      if (!curves.length) return;
      const i = present(cursor) ? nearest(steps, cursor) : null;
      const move = { ArrowLeft: (i ?? last + by) - by, ArrowRight: (i ?? -by) + by, Home: 0, End: last }[event.key];
      const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const next = curves[(curves.indexOf(active) + (turn ?? 0) + curves.length) % curves.length];
      if (present(move)) point(steps[clamp(move, 0, last)], active ?? curves[0]);
      else if (turn) point(cursor ?? steps[last], next);
      else if (event.key === "Escape") point(null, null);
      else return;
      event.preventDefault();
    });
    // In the next frame: it is an error if a chart changes its height while it is measured
    new ResizeObserver(() => requestAnimationFrame(() => plot.clientWidth !== width && layout())).observe(plot);
    let hidden = []; // paper shows every curve
    addEventListener("beforeprint", () => (hidden = series.filter((s) => !s.shown)).forEach((s) => show(s, true)));
    addEventListener("afterprint", () => hidden.forEach((s) => show(s, false)));
    layout();
  }

  async function inflate(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // matplotlib's magma for t in [0, 1], to within five levels of 255.
  function magma(t) {
    const place = t * (MAGMA.length - 1);
    const i = Math.min(MAGMA.length - 2, Math.floor(place));
    const channel = (stop, k) => parseInt(MAGMA[stop].slice(2 * k, 2 * k + 2), 16);
    return [0, 1, 2].map((k) => Math.round(channel(i, k) + (place - i) * (channel(i + 1, k) - channel(i, k))));
  }

  // One seed is already well off black: that somebody has been there matters more than how many have.
  const shade = (count, seeds) => magma(count ? 0.25 + 0.75 * Math.min(1, count / seeds) : 0);

  async function heat(figure, spec) {
    caption(figure, spec.title);
    const { width, height, steps } = spec;
    const cells = width * height;
    if (!steps.length || !spec.panels.length) return figure.append(notice("No data for this map yet."));
    const walls = await inflate(spec.walls);
    const panels = await Promise.all(spec.panels.map(async (panel) => {
      const frames = await inflate(panel.frames);
      for (let i = cells; i < frames.length; i++) frames[i] += frames[i - cells]; // a frame holds what it adds
      const shades = Array.from({ length: 256 }, (_, count) => shade(count, panel.max));
      const [canvas, count] = [el("canvas", { width, height, role: "img" }), el("span", { class: "soft" })];
      return { ...panel, frames, shades, canvas, count, last: frames.length / cells - 1 };
    }));

    function paint(panel, step) {
      const from = Math.min(step, panel.last) * cells;
      const context = panel.canvas.getContext("2d");
      const image = context.createImageData(width, height);
      let [any, all] = [0, 0];
      for (let cell = 0; cell < cells; cell++) {
        const count = panel.frames[from + cell];
        any += count > 0;
        all += count;
        const pixel = 4 * ((height - 1 - (cell % height)) * width + Math.floor(cell / height)); // y upwards
        image.data.set(walls[cell] ? WALL : panel.shades[count], pixel);
        image.data[pixel + 3] = 255;
      }
      context.putImageData(image, 0, 0);
      const until = step > panel.last ? `\ndata end at ${number(steps[panel.last])} steps` : "";
      panel.count.textContent = `${number(all / panel.max, 1)} cells per seed\n${number(any)} by any seed${until}`;
      panel.canvas.setAttribute("aria-label", `${panel.name}: ${panel.count.textContent}`);
    }

    const last = steps.length - 1;
    const range = { type: "range", min: 0, max: last, value: last, "aria-label": `${spec.title}: step` };
    const [slider, label, play] = [el("input", range), el("output"), el("button", { type: "button" }, "Play")];
    let timer = null;
    function go(step) {
      slider.value = step;
      label.textContent = `${number(steps[step])} steps`;
      slider.setAttribute("aria-valuetext", label.textContent);
      for (const panel of panels) paint(panel, step);
      if (step === last) stop();
    }
    function stop() {
      timer = clearInterval(timer);
      play.textContent = "Play";
    }
    play.addEventListener("click", () => {
      if (timer) return stop();
      const pause = clamp(6000 / steps.length, 60, 500); // about six seconds from start to end
      timer = setInterval(() => go(slider.valueAsNumber + 1), pause);
      play.textContent = "Pause";
      go(slider.valueAsNumber === last ? 0 : slider.valueAsNumber);
    });
    slider.addEventListener("input", () => (stop(), go(slider.valueAsNumber)));
    const bar = Array.from({ length: 9 }, (_, i) => `rgb(${shade(i || 0.01, 8)})`).join();
    const sample = (paint, name) => el("span", {}, el("i", { style: `background:${paint}` }), name);
    figure.append(
      el("div", { class: "controls" }, play, slider, label),
      el("div", { class: "panels" }, ...panels.map((p) => el("div", {}, el("strong", {}, p.name), p.canvas, p.count))),
      el("p", { class: "soft key" }, sample(`rgb(${shade(0, 1)})`, "no seed"),
        sample(`linear-gradient(to right,${bar})`, "one seed to all"), sample(`rgb(${WALL})`, "wall")));
    go(last);
  }

  // A number where the cell holds one ("1,234", "−0.5"), else its text; what is empty or a dash has no value.
  function cellValue(cell) {
    const text = (cell?.dataset.value ?? cell?.textContent ?? "").trim();
    if (/^([-–—]?|nan)$/i.test(text)) return null;
    const value = Number(text.replaceAll(",", "").replace("\u2212", "-"));
    return Number.isNaN(value) ? text : value;
  }

  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(b, "en", { numeric: true });

  for (const table of document.querySelectorAll("table.sortable")) {
    const headers = [...(table.tHead?.rows[0]?.cells ?? [])];
    headers.forEach((header, column) => {
      const button = el("button", { type: "button", class: "sort" }, ...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of headers) other.removeAttribute("aria-sort");
        header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows].map((row) => [cellValue(row.cells[column]), row]);
        // Rows without a value stay at the end in either direction
        rows.sort(([a], [b]) => (present(a) && present(b) ? sign * compare(a, b) : present(b) - present(a)));
        table.tBodies[0].append(...rows.map(([, row]) => row));
      });
    });
  }

  for (const pre of document.querySelectorAll("pre.command")) {
    const button = el("button", { type: "button", class: "copy", "aria-live": "polite" }, "copy");
    const box = el("div", { class: "copyable" });
    pre.replaceWith(box);
    box.append(pre, button);
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(pre); // where a page may not copy, the reader's own key can
      const done = navigator.clipboard?.writeText(pre.textContent.trim()).then(() => "copied");
      button.textContent = await Promise.resolve(done ?? "selected").catch(() => "selected");
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
  }

  const links = [...document.querySelectorAll("nav.contents a[href^='#']")];
  function markSection() {
    const top = (link) => document.getElementById(link.hash.slice(1))?.getBoundingClientRect().top ?? Infinity;
    const here = links.filter((link) => top(link) < innerHeight / 3).sort((a, b) => top(a) - top(b)).at(-1);
    for (const link of links) link.setAttribute("aria-current", link === here);
  }
  if (links.length) addEventListener("scroll", markSection, { passive: true });

  async function fill(figure, specs, id, draw) {
    try {
      await (specs?.[id] ? draw(figure, specs[id]) : figure.append(notice("No data for this figure yet.")));
    } catch (error) {
      console.error(error); // one figure that fails leaves the others standing
      figure.append(notice(`This figure could not be drawn: ${error.message}`));
    }
  }
  const figures = (kind) => [...document.querySelectorAll(`figure.${kind}`)];
  const work = figures("chart").map((figure) => fill(figure, data.charts, figure.dataset.chart, chart));
  work.push(...figures("heat").map((figure) => fill(figure, data.heats, figure.dataset.heat, heat)));
  Promise.all(work).then(() => (document.documentElement.dataset.ready = "yes"));
})();
