// Points that can be dragged; see points.py for what the traits mean. Plain JavaScript, nothing is fetched.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 560, SEND_EVERY = 40;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.appendChild(made);
  return made;
}

function ticks(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found.map((value) => Number(value.toPrecision(12)));
}

// a shape for each group, so that groups differ in grey too: those of the atlas
function shape(group, r) {
  const polygon = (n, turn) =>
    Array.from({ length: n }, (_, i) => {
      const a = turn + (2 * Math.PI * i) / n;
      return `${i ? "L" : "M"}${1.25 * r * Math.cos(a)},${1.25 * r * Math.sin(a)}`;
    }).join("") + "Z";
  if (group === 1) return polygon(4, Math.PI / 4);
  if (group === 2) return polygon(3, -Math.PI / 2);
  if (group === 3) return polygon(4, 0);
  if (group === 4) return polygon(3, Math.PI / 2);
  if (group === 5) return polygon(6, 0);
  return `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
}

class View {
  constructor(model, root) {
    this.model = model;
    this.points = model.get("points").map((row) => [...row]);
    this.groups = [...model.get("groups")];
    this.round = model.get("view") !== "plane";
    this.window = this.round ? [-1.2, 1.2, -1.2, 1.2] : model.get("box");
    this.margin = this.round ? [48, 48, 8, 8] : [44, 12, 34, 12]; // left, right, bottom, top
    this.height = (!this.round && model.get("height")) || this.isotropic();
    this.box = document.createElement("div");
    this.box.className = "mf-points";
    root.appendChild(this.box);
    this.svg = element("svg", { viewBox: `0 0 ${WIDTH} ${this.height}`, role: "group" }, null);
    this.svg.setAttribute("aria-label", `${model.get("title")}: points that can be moved with the arrow keys`);
    this.box.appendChild(this.svg);
    this.ground = element("g", {}, this.svg);
    // curves end where the window does
    const [l, r, b, t] = this.margin, name = `mf-window-${Math.random().toString(36).slice(2)}`;
    const clip = element("clipPath", { id: name }, this.svg);
    element("rect", { x: l, y: t, width: WIDTH - l - r, height: this.height - b - t }, clip);
    this.lines = element("g", { "pointer-events": "none", "clip-path": `url(#${name})` }, this.svg);
    this.marks = element("g", {}, this.svg);
    this.drawGround();
    this.drawBar();
    this.svg.addEventListener("dblclick", (event) => this.addAt(event));
    if (model.get("pen")) this.svg.addEventListener("pointerdown", (event) => this.draw(event));
    this.drawCurves();
    this.rebuild();
  }

  // the height at which both axes have one scale
  isotropic() {
    const [l, r, b, t] = this.margin, [x0, x1, y0, y1] = this.window;
    return Math.round(b + t + ((WIDTH - l - r) * (y1 - y0)) / (x1 - x0));
  }

  // numbers to pixels and back
  place([x, y]) {
    const [l, r, b, t] = this.margin, [x0, x1, y0, y1] = this.window;
    return [
      l + ((x - x0) / (x1 - x0)) * (WIDTH - l - r),
      this.height - b - ((y - y0) / (y1 - y0)) * (this.height - b - t),
    ];
  }

  read(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    const [l, r, b, t] = this.margin, [x0, x1, y0, y1] = this.window;
    return [
      x0 + ((at.x - l) / (WIDTH - l - r)) * (x1 - x0),
      y0 + ((this.height - b - at.y) / (this.height - b - t)) * (y1 - y0),
    ];
  }

  // the point that a place in the window stands for; `old` is where it was
  settle([x, y], old) {
    const view = this.model.get("view");
    if (view === "plane") {
      const [x0, x1, y0, y1] = this.window;
      const held = old && this.model.get("only") === "y" ? old[0] : x;
      return [Math.min(x1, Math.max(x0, held)), Math.min(y1, Math.max(y0, y))];
    }
    const r = Math.hypot(x, y) || 1e-9;
    if (view === "circle") return [x / r, y / r];
    const side = old && old[2] < 0 ? -1 : 1;
    if (r <= 1) return [x, y, side * Math.sqrt(1 - r * r)];
    // beyond the rim the way leads back on the other side; much farther it stops at the rim
    const folded = Math.max(2 - r, 0.75);
    return [(x / r) * folded, (y / r) * folded, -side * Math.sqrt(1 - folded * folded)];
  }

  text(words, x, y, attributes) {
    element("text", { x, y, ...attributes }, this.ground).textContent = words;
  }

  drawGround() {
    const [x0, x1, y0, y1] = this.window;
    if (this.round) {
      const [cx, cy] = this.place([0, 0]), r = this.place([1, 0])[0] - cx;
      element("circle", { cx, cy, r, class: "spine" }, this.ground);
      if (this.model.get("view") === "sphere") {
        for (const share of [0.5, 0.8660254]) element("circle", { cx, cy, r: r * share, class: "grid" }, this.ground);
        element("path", { d: `M${cx - r},${cy}h${2 * r}M${cx},${cy - r}v${2 * r}`, class: "grid" }, this.ground);
      }
      return;
    }
    const [left, bottom] = this.place([x0, y0]), [right, top] = this.place([x1, y1]);
    for (const x of ticks(x0, x1)) {
      const at = this.place([x, y0])[0];
      element("path", { d: `M${at},${bottom}V${top}`, class: "grid" }, this.ground);
      this.text(String(x).replace("-", "−"), at, bottom + 15, { "text-anchor": "middle" });
    }
    for (const y of ticks(y0, y1)) {
      const at = this.place([x0, y])[1];
      element("path", { d: `M${left},${at}H${right}`, class: "grid" }, this.ground);
      this.text(String(y).replace("-", "−"), left - 6, at + 4, { "text-anchor": "end" });
    }
    element("path", { d: `M${left},${top}V${bottom}H${right}`, class: "spine" }, this.ground);
    this.text(this.model.get("xlabel"), (left + right) / 2, this.height - 4, { "text-anchor": "middle" });
    const middle = (top + bottom) / 2;
    this.text(this.model.get("ylabel"), 12, middle, { "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` });
  }

  drawBar() {
    const bar = document.createElement("div");
    bar.className = "bar";
    const button = (words, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = words;
      made.addEventListener("click", act);
      bar.appendChild(made);
      return made;
    };
    const fixed = this.model.get("least") === this.model.get("most"), pen = this.model.get("pen");
    if (this.model.get("most") === 0) return; // only curves are shown
    if (!fixed && !pen) {
      this.more = button("add a point", () => this.add(this.settle(this.somewhere(), null)));
      this.fewer = button("remove", () => this.remove(this.last ?? this.points.length - 1));
    }
    if (pen) this.clear = button("clear", () => this.replace([]));
    const hint = document.createElement("span");
    hint.className = "hint";
    hint.textContent = pen
      ? "Draw with the mouse."
      : "Drag points, or use Tab and the arrow keys." +
        (fixed ? "" : " A double click adds one, Delete removes it.") +
        (this.model.get("view") === "sphere" ? " Hollow points are behind: drag over the rim." : "");
    bar.appendChild(hint);
    this.box.appendChild(bar);
  }

  somewhere() {
    const [x0, x1, y0, y1] = this.window;
    const angle = 2.399963 * this.points.length, share = 0.1 + 0.25 * ((this.points.length * 0.618) % 1);
    return [(x0 + x1) / 2 + share * (x1 - x0) * Math.cos(angle), (y0 + y1) / 2 + share * (y1 - y0) * Math.sin(angle)];
  }

  drawCurves() {
    const palette = this.model.get("palette"), ink = this.model.get("ink");
    this.lines.replaceChildren();
    // neighbours that look alike are one element: hundreds of them take the browser longer than all else
    const paths = [];
    let last = null;
    for (const { points, color, style, width, words } of this.model.get("curves")) {
      const stroke = color === "ink" ? ink[0] : palette[color];
      const rows = points.map((row) => this.place(row).map((v) => v.toFixed(1)).join(","));
      if (style === "dots") {
        last = null; // what follows lies above the dots
        const d = rows.map((row) => `M${row}h0`).join("");
        element("path", { d, stroke, "stroke-width": 2 * width, "stroke-linecap": "round", fill: "none" }, this.lines);
        words.forEach((word, i) => {
          const [x, y] = this.place(points[i]);
          element("text", { x: x + width + 3, y: y + 4, class: "word" }, this.lines).textContent = word;
        });
        continue;
      }
      const d = rows.length ? `M${rows.join("L")}` : "", look = `${stroke} ${width}`;
      if (style === "line" && last?.look === look) {
        last.parts.push(d);
        continue;
      }
      const made = element("path", { stroke, "stroke-width": width, fill: "none", "stroke-linejoin": "round" }, this.lines);
      if (style === "dashed") made.setAttribute("stroke-dasharray", "6 3.5");
      last = { made, parts: [d], look: style === "line" ? look : null };
      paths.push(last);
    }
    for (const { made, parts } of paths) made.setAttribute("d", parts.join(""));
  }

  // all marks anew: their number, or a group, has changed
  rebuild(focus) {
    this.marks.replaceChildren();
    const pen = this.model.get("pen"), palette = this.model.get("palette");
    const r = pen ? 3 : this.points.length > 60 ? 4 : 6;
    this.points.forEach((_, i) => {
      const group = this.groups[Math.min(i, this.groups.length - 1)];
      const mark = element("g", { class: "point", "data-index": i }, this.marks);
      if (!pen) {
        element("circle", { r: 2 * r, class: "halo" }, mark);
        mark.setAttribute("tabindex", "0");
        mark.setAttribute("role", "button");
        mark.addEventListener("pointerdown", (event) => this.drag(event, i, mark));
        mark.addEventListener("keydown", (event) => this.key(event, i));
        mark.addEventListener("focus", () => (this.last = i));
      }
      element("path", { d: shape(group, r), class: "mark", stroke: palette[group], "stroke-width": 1.5 }, mark);
    });
    this.update();
    if (focus !== undefined) this.marks.children[Math.min(focus, this.points.length - 1)]?.focus();
    if (this.more) this.more.disabled = this.points.length >= this.model.get("most");
    if (this.fewer) this.fewer.disabled = this.points.length <= this.model.get("least");
    if (this.clear) this.clear.disabled = this.points.length === 0;
  }

  // all marks, or the one that moved: writing hundreds of them is seen in a drag
  update(only) {
    const palette = this.model.get("palette");
    this.points.forEach((point, i) => {
      if (only !== undefined && i !== only) return;
      const mark = this.marks.children[i], [x, y] = this.place(point);
      const group = this.groups[Math.min(i, this.groups.length - 1)];
      mark.setAttribute("transform", `translate(${x.toFixed(2)},${y.toFixed(2)})`);
      mark.lastChild.setAttribute("fill", point[2] < 0 ? "#FFFFFF" : palette[group]);
      const where = point.map((v) => v.toFixed(2)).join(", ");
      mark.setAttribute("aria-label", `point ${i + 1} of ${this.points.length} at (${where})`);
    });
  }

  // to Python: at once if nothing was sent for a while, otherwise soon, and always the last state
  send() {
    const now = performance.now();
    clearTimeout(this.timer);
    this.timer = null;
    if (now - (this.sent ?? -Infinity) >= SEND_EVERY) {
      this.sent = now;
      this.model.set("groups", [...this.groups]);
      this.model.set("points", this.points.map((row) => [...row]));
      this.model.save_changes();
    } else {
      this.timer = setTimeout(() => this.send(), SEND_EVERY);
    }
  }

  move(i, place) {
    this.points[i] = this.settle(place, this.points[i]);
    this.update(i);
    this.send();
  }

  drag(event, i, mark) {
    if (event.button !== 0) return;
    event.preventDefault();
    mark.focus();
    mark.setPointerCapture(event.pointerId);
    this.dragging = true;
    const old = [...this.points[i]], from = this.read(event), shift = [old[0] - from[0], old[1] - from[1]];
    const follow = (e) => {
      const at = this.read(e);
      // the side of the sphere is that of the beginning of the drag
      this.points[i] = this.settle([at[0] + shift[0], at[1] + shift[1]], old);
      this.update(i);
      this.send();
    };
    const stop = () => {
      mark.removeEventListener("pointermove", follow);
      this.dragging = false;
    };
    mark.addEventListener("pointermove", follow);
    mark.addEventListener("pointerup", stop, { once: true });
    mark.addEventListener("pointercancel", stop, { once: true });
  }

  key(event, i) {
    const [x0, x1, y0, y1] = this.window, share = event.shiftKey ? 0.1 : 0.02;
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (way) {
      const [x, y] = this.points[i];
      if (this.model.get("view") === "circle") {
        const angle = Math.atan2(y, x) + (way[1] - way[0]) * (event.shiftKey ? 0.25 : 0.05);
        this.move(i, [Math.cos(angle), Math.sin(angle)]);
      } else {
        this.move(i, [x + way[0] * share * (x1 - x0), y + way[1] * share * (y1 - y0)]);
      }
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.remove(i);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  add(point) {
    if (this.points.length >= this.model.get("most")) return;
    this.points.push(point);
    this.rebuild(this.points.length - 1);
    this.send();
  }

  addAt(event) {
    const fixed = this.model.get("least") === this.model.get("most");
    if (fixed || this.model.get("pen") || event.target.closest(".point")) return;
    const [x, y] = this.read(event), [x0, x1, y0, y1] = this.window;
    if (x >= x0 && x <= x1 && y >= y0 && y <= y1) this.add(this.settle([x, y], null));
  }

  remove(i) {
    if (this.points.length <= this.model.get("least")) return;
    this.points.splice(i, 1);
    if (this.groups.length > 1 && i < this.groups.length) this.groups.splice(i, 1);
    this.rebuild(i);
    this.send();
  }

  replace(points) {
    this.points = points;
    this.rebuild();
    this.send();
  }

  draw(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    this.dragging = true;
    const [x0, x1] = this.window, gap = (x1 - x0) / 48;
    const dot = (e) => {
      const at = this.settle(this.read(e), null);
      const before = e.type === "pointermove" ? this.points[this.points.length - 1] : null;
      const way = before ? Math.hypot(at[0] - before[0], at[1] - before[1]) : gap;
      if (way < gap) return;
      // a fast hand leaves gaps, which are filled
      const many = before ? Math.floor(way / gap) : 1, room = this.model.get("most") - this.points.length;
      for (let k = 1; k <= Math.min(many, room); k++)
        this.points.push(before ? at.map((v, i) => before[i] + ((v - before[i]) * k) / many) : at);
      this.rebuild();
      this.send();
    };
    const stop = () => {
      this.svg.removeEventListener("pointermove", dot);
      this.dragging = false;
    };
    dot(event);
    this.svg.addEventListener("pointermove", dot);
    this.svg.addEventListener("pointerup", stop, { once: true });
    this.svg.addEventListener("pointercancel", stop, { once: true });
  }

  // from Python
  received() {
    const points = this.model.get("points"), same = points.length === this.points.length;
    if (this.dragging || this.timer) return; // what is on its way there is newer
    this.points = points.map((row) => [...row]);
    this.groups = [...this.model.get("groups")];
    if (same) this.update();
    else this.rebuild();
  }
}

function render({ model, el }) {
  const view = new View(model, el);
  const curves = () => view.drawCurves(), points = () => view.received();
  model.on("change:curves", curves);
  model.on("change:points", points);
  return () => {
    model.off("change:curves", curves);
    model.off("change:points", points);
    clearTimeout(view.timer);
  };
}

export default { render };
