// What the views of all widgets use. Plain functions: d2lmini puts this text before each module.

// The module of a widget. `start()` is the state that all its views show, `take(state, header,
// buffers)` renews it, `build(state, model, el, all)` makes a view: { update(header), end() }, and
// `all()` updates every view of the widget.
const widgetOf = (start, take, build) => () => {
  const state = start();
  const views = new Set();
  return {
    initialize({ model }) {
      listen(model, (header, buffers) => {
        take(state, header, buffers);
        views.forEach((view) => view.update(header));
      });
    },
    render({ model, el }) {
      el.classList.add("d2l-widget");
      const view = build(state, model, el, () => views.forEach((each) => each.update()));
      views.add(view);
      onRestart(model, el);
      return () => {
        views.delete(view);
        view.end?.();
      };
    },
  };
};

// Take the messages of a widget: `take(header, buffers)`, buffers as DataViews. A view that missed
// one takes nothing until it has everything (header.whole), for which it asks.
function listen(model, take) {
  let last = null;
  let asked = 0;
  const ask = () => {
    asked = Date.now();
    model.send({ kind: "ready" });
  };
  model.on("msg:custom", (header, buffers) => {
    if (header.whole || (last !== null && header.n === last + 1)) {
      last = header.n;
      take(header, buffers ?? []);
    } else if (Date.now() - asked > 1000) ask();
  });
  ask();
}

// The colours of the theme that is on now: colour("compute"), colour("compute-edge"), "text", ...
// (every --d2l-NAME of style.css).
function palette(el) {
  const found = new Map();
  return (name) => {
    if (!found.has(name)) {
      el.style.color = `var(--d2l-${name})`; // asked of the browser, which knows the theme
      found.set(name, getComputedStyle(el).color);
      el.style.color = "";
    }
    return found.get(name);
  };
}

// Call `changed` whenever JupyterLab, VS Code or the system goes from light to dark or back.
// Returns what ends it.
function onTheme(changed) {
  const observer = new MutationObserver(changed);
  const names = ["class", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"];
  observer.observe(document.body, { attributes: true, attributeFilter: names });
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", changed);
  };
}

// When the kernel restarts, say so at the top of the view and disable everything below: nothing
// answers it any more.
function onRestart(model, el) {
  model.on("comm_live_update", () => {
    if (el.querySelector(":scope > .d2l-restarted")) return;
    for (const part of el.children) part.inert = true;
    const words = "The kernel has restarted: run the cell again.";
    el.prepend(element("div", { class: "d2l-restarted", role: "status" }, words));
  });
}

// -- elements --------------------------------------------------------------------------------------

// An element: element("button", { class: "d2l-button", title: "..." }, "text", child, ...).
// Attributes that begin with "on" are listeners.
function element(tag, attributes = {}, ...children) {
  return fitted(document.createElement(tag), attributes, children);
}

// An SVG element likewise.
function drawn(tag, attributes = {}, ...children) {
  return fitted(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fitted(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A button with a word, what it does as a tooltip and for screen readers, and what it calls.
function button(word, title, onclick) {
  const press = (event) => made.getAttribute("aria-disabled") === "true" || onclick(event);
  const made = element("button", { class: "d2l-button", type: "button", title, onclick: press }, word);
  return made;
}

// Enable or disable a button. A disabled button keeps the keyboard's focus.
function enable(each, on) {
  each.setAttribute("aria-disabled", !on);
}

// A legend's entry: a swatch with the kind's colour, or another mark, and a word.
function legendEntry(kind, word) {
  const mark = kind instanceof Element ? kind : element("span", { class: `d2l-swatch d2l-${kind}` });
  return element("span", { class: "d2l-legend-entry" }, mark, word);
}

// A legend's mark for a line of a chart: a colour of style.css and dashes.
function lineMark(colour, dashes = []) {
  const stroke = `stroke: var(--d2l-${colour}); stroke-width: 1.6`;
  const line = drawn("path", { d: "M0 5h26", style: stroke, "stroke-dasharray": dashes.join(" ") });
  return drawn("svg", { width: 28, height: 10, "aria-hidden": true }, line);
}

// Terms and what they mean: [["line", "x = x + 1"], ...].
function termList(rows) {
  return rows.flatMap(([term, words]) => [element("dt", {}, term), element("dd", {}, words)]);
}

// Seconds as people say them: "1.23 s", "45.6 ms", "7.8 us".
function inTime(seconds) {
  const [value, unit] =
    seconds >= 1 ? [seconds, "s"] : seconds >= 1e-3 ? [seconds * 1e3, "ms"] : [seconds * 1e6, "us"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

// Bytes likewise, as MB of a million: "16 MB", "2.4 GB".
function inBytes(nbytes) {
  const [value, unit] = nbytes >= 1e9 ? [nbytes / 1e9, "GB"] : [nbytes / 1e6, "MB"];
  return nbytes ? `${Number(value.toPrecision(3))} ${unit}` : "0";
}

// -- graphs ----------------------------------------------------------------------------------------

// Draw the scene of draw/svg.py into `svg`: boxes of { x, y, width, height, lines },
// and arrows between them. Gives the groups of both, in order; `press(number)` is called when a box
// is clicked, or chosen by Enter or space.
function drawGraph(svg, scene, press) {
  const [width, height] = scene.size;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.maxWidth = `${width}px`;
  svg.style.minWidth = `${0.78 * width}px`; // smaller where there is less room, and still legible
  const arrows = scene.edges.map((edge) => drawn("g", { class: `d2l-arrow ${edge.value ? "" : "d2l-room"}` },
    drawn("path", { d: edge.path }), drawn("path", { d: edge.head })));
  const boxes = scene.boxes.map((box, number) => {
    const { x, y, width: wide, height: high } = box;
    const rect = (more, name) => drawn("rect", { x: x - wide / 2 - more, y: y - more,
      width: wide + 2 * more, height: high + 2 * more, rx: 4 + more, class: name });
    const lines = box.lines.map((line, i) => drawn("text",
      { x, y: y + 15 + 13 * i, class: i ? "" : "d2l-first" }, line));
    return drawn("g", { class: "d2l-box", tabindex: 0, role: "button",
      "aria-label": box.lines.join(", "), onclick: () => press(number),
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        press(number);
      } }, rect(0, "d2l-body"), rect(3, "d2l-mark"), ...lines);
  });
  svg.replaceChildren(...arrows, ...boxes);
  return { arrows, boxes };
}

// -- charts ----------------------------------------------------------------------------------------

// A canvas of this height that is as wide as its place and sharp on dense screens. `draw(pen)` is
// called once per frame at most, after `again()`, and whenever the width or the theme changes.
function drawing(height, el, draw) {
  const canvas = element("canvas", { class: "d2l-canvas", tabindex: "0" });
  canvas.style.height = `${height}px`;
  let asked = 0;
  let tries = 0;
  const paint = () => {
    asked = 0;
    const width = canvas.clientWidth;
    if (!width) {
      // Hidden, or JupyterLab is between two themes and says so for one frame, of which the
      // observer below does not hear.
      if (tries++ < 10) setTimeout(again, 100);
      return;
    }
    tries = 0;
    const dense = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * dense), Math.round(height * dense)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    const context = canvas.getContext("2d");
    context.setTransform(dense, 0, 0, dense, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(new Pen(context, el, width, height));
    canvas.dataset.draws = Number(canvas.dataset.draws || 0) + 1;
  };
  const again = () => {
    asked ||= requestAnimationFrame(paint);
  };
  const resize = (to) => {
    if (to === height) return;
    height = to;
    canvas.style.height = `${to}px`;
    again();
  };
  const observer = new ResizeObserver(again);
  observer.observe(canvas);
  const endTheme = onTheme(again);
  const end = () => {
    observer.disconnect();
    endTheme();
    cancelAnimationFrame(asked);
  };
  return { canvas, again, resize, end };
}

// A canvas as we draw on it, with the colours and the font of the theme.
class Pen {
  constructor(context, el, width, height) {
    Object.assign(this, { context, width, height, colour: palette(el) });
    this.font = getComputedStyle(el).fontFamily;
  }

  // Text that fits into `room` dots, or nothing.
  text(words, x, y, { align = "left", colour = "text", room = Infinity, size = 11 } = {}) {
    const { context } = this;
    context.font = `${size}px ${this.font}`;
    if (context.measureText(words).width > room) return false;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.fillStyle = this.colour(colour);
    context.fillText(words, x, y);
    return true;
  }

  // A line through these places; `down`: filled from the line to this height, half transparent.
  line(places, colour, { width = 1, dashes = [], down = null, fill = colour } = {}) {
    const { context } = this;
    if (!places.length) return;
    context.beginPath();
    places.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.lineWidth = width;
    context.setLineDash(dashes);
    context.strokeStyle = this.colour(colour);
    context.stroke();
    context.setLineDash([]);
    if (down === null) return;
    context.lineTo(places.at(-1)[0], down);
    context.lineTo(places[0][0], down);
    context.fillStyle = this.colour(fill);
    context.globalAlpha = 0.6;
    context.fill();
    context.globalAlpha = 1;
  }
}

// 1, 2 or 5 times a power of ten: at most about `parts` of them in `length`.
function niceStep(length, parts) {
  const power = 10 ** Math.floor(Math.log10(length / parts));
  return power * [1, 2, 5, 10].find((factor) => factor * power * parts >= length * (1 - 1e-9));
}

// The multiples of a nice step from `from` to `to`, as numbers and as text.
function ticks(from, to, parts) {
  const step = niceStep(to - from, parts);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const first = Math.ceil(from / step - 1e-9);
  const count = Math.max(0, Math.floor(to / step + 1e-9) - first + 1);
  return Array.from({ length: count }, (_, i) => [(first + i) * step, ((first + i) * step).toFixed(digits)]);
}
