// What the views of all widgets use. Plain functions: d2lmini puts this text before each module.

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
    if (header.whole || header.n === last + 1) {
      if (last !== null || header.whole) {
        last = header.n;
        take(header, buffers ?? []);
        return;
      }
    }
    if (Date.now() - asked > 1000) ask();
  });
  ask();
}

// Float64 or other numbers out of a message's buffer: numbers(buffers[0], Float64Array).
function numbers(view, Kind = Float64Array) {
  const bytes = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  return new Kind(bytes);
}

// The colours of the theme that is on now: colour("compute"), colour("compute-edge"), "text", ...
// (every --d2l-NAME of style.css).
function palette(el) {
  const style = getComputedStyle(el);
  return (name) => style.getPropertyValue(`--d2l-${name}`).trim();
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
// answers it any more. To be called by `render` when the view is in `el`.
function onRestart(model, el) {
  model.on("comm_live_update", () => {
    if (el.querySelector(":scope > .d2l-restarted")) return;
    for (const part of el.children) part.inert = true;
    const words = "The kernel has restarted: run the cell again.";
    el.prepend(element("div", { class: "d2l-restarted", role: "status" }, words));
  });
}

// An element: element("button", { class: "d2l-button", title: "..." }, "text", child, ...).
// Attributes that begin with "on" are listeners.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A button with a word, what it does as a tooltip and for screen readers, and what it calls.
function button(word, title, onclick) {
  const press = (event) => {
    if (made.getAttribute("aria-disabled") !== "true") onclick(event);
  };
  const made = element("button", { class: "d2l-button", type: "button", title, onclick: press }, word);
  return made;
}

// Enable or disable a button. A disabled button keeps the keyboard's focus.
function enable(each, on) {
  each.setAttribute("aria-disabled", !on);
}

// A canvas of this height that is as wide as its place and sharp on dense screens.
// `draw(context, width, height)` is called once per frame at most, after `again()`, and whenever
// the width changes. Gives { canvas, again, end }.
function drawing(height, draw) {
  const canvas = element("canvas", { class: "d2l-canvas", tabindex: "0" });
  canvas.style.height = `${height}px`;
  let asked = 0;
  let tries = 0;
  let high = height;
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
    const [w, h] = [Math.round(width * dense), Math.round(high * dense)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    const context = canvas.getContext("2d");
    context.setTransform(dense, 0, 0, dense, 0, 0);
    context.clearRect(0, 0, width, high);
    draw(context, width, high);
    canvas.dataset.draws = Number(canvas.dataset.draws || 0) + 1;
  };
  const again = () => {
    asked ||= requestAnimationFrame(paint);
  };
  const resize = (to) => {
    if (to !== high) {
      high = to;
      canvas.style.height = `${to}px`;
      again();
    }
  };
  const observer = new ResizeObserver(again);
  observer.observe(canvas);
  const end = () => {
    observer.disconnect();
    cancelAnimationFrame(asked);
  };
  return { canvas, again, resize, end };
}

// How each kind of thing is drawn besides its colour, so that nothing hangs on colour alone:
// plain, dotted, lines that rise, lines that fall, crossed.
const TEXTURE = {
  compute: "plain", copy: "dots", wait: "rising", accent: "plain", read: "plain", write: "falling",
  failed: "crossed",
};

// Fill for a kind on a canvas: its colour with its texture, in `colour = palette(el)`.
// Remember it: making a pattern takes time.
function fill(context, kind, colour) {
  const size = 6;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour(kind);
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = pen.fillStyle = colour(`${kind}-edge`);
  pen.lineWidth = 1;
  const texture = TEXTURE[kind] ?? "plain";
  pen.beginPath();
  if (texture === "dots") pen.fillRect(2, 2, 1.6, 1.6);
  if (texture === "rising" || texture === "crossed") {
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
    }
  }
  if (texture === "falling" || texture === "crossed") {
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, -1);
      pen.lineTo(shift + size + 1, size + 1);
    }
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

// An SVG element with attributes and children.
function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A legend's entry: a swatch with the kind's colour and texture, and a word.
function legendEntry(kind, word) {
  const swatch = element("span", { class: `d2l-swatch d2l-${kind}`, "aria-hidden": "true" });
  return element("span", { class: "d2l-legend-entry" }, swatch, word);
}

// Seconds as people say them: "1.23 s", "45.6 ms", "7.8 us".
function inTime(seconds) {
  const [value, unit] =
    seconds >= 1 ? [seconds, "s"] : seconds >= 1e-3 ? [seconds * 1e3, "ms"] : [seconds * 1e6, "us"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

// Bytes likewise, as MB of a million: "16 MB", "2.4 GB".
function inBytes(nbytes) {
  const size = Math.abs(nbytes);
  const [value, unit] =
    size >= 1e9 ? [nbytes / 1e9, "GB"] : size >= 1e6 ? [nbytes / 1e6, "MB"]
      : size >= 1e3 ? [nbytes / 1e3, "kB"] : [nbytes, "B"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}
