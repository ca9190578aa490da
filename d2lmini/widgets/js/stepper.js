// The stepper. Python sends { nodes, edges, size, high, workers, state } once and { state } after
// every move; all that is drawn follows from these. What is chosen here (a node) is the view's own.

// How each state is marked beside its colour.
const MARK = { waiting: "…", ahead: "?", later: "", ready: "▷", running: "▶", done: "✓",
  failed: "✗", skipped: "✗" };

function stepperView(stepper, model, el) {
  const send = (message) => {
    model.send(message);
    clearTimeout(late);
    late = setTimeout(() => { hint.textContent = "the kernel is busy"; }, 1500);
  };
  let late = 0;
  let selected = null;
  let playing = false;
  let shown = null; // the drawing that is in the page
  const nodes = new Map();
  let arrows = []; // of the drawing: the operation to which each leads, and its element

  // -- the page -----------------------------------------------------------------------------------
  const back = button("◀ back", "Take the last move back (left arrow)", () => send({ kind: "back" }));
  const forward = button("forward ▶", "The next move (right arrow)", () => send({ kind: "step" }));
  const run = button("run", "Move until it is over, one move after the other (End)", () => play(!playing));
  const runTo = button("run to selected", "Move until the selected operation begins; back, if it has",
    () => send({ kind: "run_to", number: selected }));
  const reset = button("reset", "To the beginning (Home)", () => again());
  const seed = element("input", { type: "number", min: 0, step: 1, placeholder: "none",
    "aria-label": "seed: draw one of all legal orders",
    title: "Draw one of all legal orders; empty: in order, as workers do who keep to the times",
    onchange: () => again() });
  const guessing = button("guess", "Before each move: which operation can begin next?",
    () => send({ kind: "guessing", on: !stepper.state.guessing }));
  const clock = element("span", { class: "d2l-clock" });
  const hint = element("span", { class: "d2l-quiet", role: "status" });
  const next = element("div", { class: "d2l-bar" });
  const svg = drawn("svg", { role: "group", "aria-label": "the operations and what they wait for" });
  const variables = element("table");
  const lanes = drawn("svg", { class: "d2l-lanes", role: "img" });
  const told = element("div", { class: "d2l-told", role: "log", "aria-label": "what happened" });
  const about = element("div", { class: "d2l-quiet" });
  const box = element("div", { class: "d2l-stepper", tabindex: "0", onkeydown: key,
    "data-lm-suppress-shortcuts": "true" },
  element("div", { class: "d2l-bar" }, back, forward, run, runTo, reset,
    element("label", {}, "seed ", seed), guessing, clock, hint),
  next,
  element("div", { class: "d2l-sides" },
    element("div", { class: "d2l-graph" }, svg),
    element("div", { class: "d2l-side" },
      element("h4", {}, "Arrays, and who stands in line for them"),
      element("div", { class: "d2l-arrays" }, variables),
      element("h4", {}, "Workers, on the virtual clock"), lanes, about)),
  told, legend());
  el.append(box);

  function legend() {
    const swatch = (name, word, mark) => {
      const rect = drawn("rect", { x: 2, y: 2, width: 22, height: 12, rx: 3, class: "d2l-body" });
      const icon = drawn("svg", { width: 26, height: 16 }, drawn("g", { class: `d2l-node d2l-${name}` }, rect));
      return element("span", { class: "d2l-legend-entry" }, icon, `${mark} ${word}`);
    };
    const arrow = (name, word) => {
      const paths = [drawn("path", { d: "M1 8L18 8" }), drawn("path", { d: "M17 4L24 8L17 12z" })];
      const icon = drawn("svg", { width: 26, height: 16 }, drawn("g", { class: `d2l-arrow ${name}` }, ...paths));
      return element("span", { class: "d2l-legend-entry" }, icon, word);
    };
    return element("div", { class: "d2l-legend" },
      swatch("waiting", "waits", MARK.waiting), swatch("ready", "ready", MARK.ready),
      swatch("running", "runs", MARK.running), swatch("done", "done", MARK.done),
      swatch("later", "not issued yet", ""), swatch("ahead", "to be guessed", MARK.ahead),
      arrow("", "needs the value"), arrow("d2l-room", "overwrites what that one reads or wrote"),
      element("span", { class: "d2l-legend-entry" }, chip(2, false, true), "reads"),
      element("span", { class: "d2l-legend-entry" }, chip(4, true, true), "writes"),
      element("span", { class: "d2l-legend-entry" }, chip(4, true, false), "in line"));
  }

  // -- what one does ------------------------------------------------------------------------------
  function again() {
    play(false);
    send({ kind: "reset", seed: seed.value === "" ? null : Number(seed.value) });
  }

  function play(on) {
    playing = on && !stepper.state.over;
    run.textContent = playing ? "pause" : "run";
    run.setAttribute("aria-pressed", playing);
    if (playing) send({ kind: "step" });
  }

  function key(event) {
    if (event.target === seed) return;
    const does = {
      ArrowRight: () => !stepper.state.guessing && send({ kind: "step" }),
      ArrowLeft: () => send({ kind: "back" }),
      Home: () => again(),
      End: () => !stepper.state.guessing && send({ kind: "run" }),
    }[event.key];
    if (does) {
      event.preventDefault();
      event.stopPropagation();
      play(false);
      does();
    }
  }

  function choose(number) {
    if (stepper.state.guessing && !stepper.state.over) send({ kind: "guess", number });
    selected = number;
    update();
  }

  // -- what one sees ------------------------------------------------------------------------------
  function chip(number, writes, holds) {
    const name = `d2l-chip ${writes ? "d2l-writes" : "d2l-reads"} ${holds ? "" : "d2l-queued"}`;
    const does = holds ? (writes ? "writes" : "reads") : writes ? "waits to write" : "waits to read";
    return element("span", { class: name, title: `${number} ${does}` }, `${number} ${writes ? "W" : "R"}`);
  }

  function drawGraph() {
    shown = stepper.scene;
    const [width, height] = shown.size;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.width = "100%"; // smaller where there is less room, as long as it can be read
    svg.style.maxWidth = `${width}px`;
    svg.style.minWidth = `${0.78 * width}px`;
    svg.replaceChildren();
    arrows = shown.edges.map((edge) => ({ to: edge.to, g: drawn("g",
      { class: `d2l-arrow ${edge.value ? "" : "d2l-room"}` },
      drawn("path", { d: edge.path }), drawn("path", { d: edge.head })) }));
    svg.append(...arrows.map((arrow) => arrow.g));
    nodes.clear();
    for (const node of shown.nodes) {
      const { x, y, width: wide } = node;
      const at = { x: x - wide / 2, y, width: wide, height: shown.high, rx: 4 };
      const mark = drawn("rect", { ...at, x: at.x - 3, y: y - 3, width: wide + 6, height: shown.high + 6,
        class: "d2l-mark" });
      const note = drawn("text", { x, y: y + 43, class: "d2l-small" });
      const name = drawn("text", { x, y: y + 29, class: "d2l-small" }, node.below);
      const g = drawn("g", { class: "d2l-node", tabindex: "0", role: "button" },
        mark, drawn("rect", { ...at, class: "d2l-body" }), drawn("text", { x, y: y + 15 }, node.title), name, note);
      g.addEventListener("click", () => choose(node.number));
      g.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          event.stopPropagation();
          choose(node.number);
        }
      });
      svg.append(g);
      nodes.set(node.number, { g, note, node });
    }
  }

  function drawVariables(state) {
    const rows = state.vars.map(({ name, value, line }) => element("tr", {},
      element("td", { class: "d2l-mono" }, name),
      element("td", { class: "d2l-value", title: value }, value),
      element("td", {}, ...(line.length ? line.map((each) => chip(...each)) : ["idle"]))));
    if (!rows.length) rows.push(element("tr", {}, element("td", {}, "hidden while you guess")));
    const head = ["array", "holds", "held by, then in line"].map((word) => element("th", {}, word));
    variables.replaceChildren(element("tr", {}, ...(state.vars.length ? head : [])), ...rows);
  }

  function drawLanes(state) {
    const [wide, left, high] = [340, 56, 20];
    const us = Math.max(...shown.nodes.map((node) => node.us), 1e-9);
    const ends = state.spans.map(([, n, began, ended]) => ended ?? began + nodes.get(n).node.us);
    const total = Math.max(4 * us, ...ends);
    const x = (time) => left + ((wide - left - 12) * time) / total;
    const bottom = shown.workers.length * high;
    const parts = shown.workers.map((name, i) => drawn("text", { x: 0, y: i * high + 14 }, name));
    for (const [worker, n, began, ended] of state.spans) {
      const y = shown.workers.indexOf(worker) * high;
      const end = ended ?? began + nodes.get(n).node.us;
      parts.push(drawn("rect", { x: x(began), y: y + 2, width: Math.max(x(end) - x(began), 1), height: high - 4,
        class: `d2l-span ${ended === null ? "d2l-going" : ""}` }));
      const middle = { x: (x(began) + x(end)) / 2, y: y + 14, "text-anchor": "middle" };
      if (x(end) - x(began) > 12) parts.push(drawn("text", middle, String(n)));
    }
    parts.push(drawn("line", { x1: left, x2: x(total), y1: bottom, y2: bottom }));
    for (let i = 0; i <= 4; i++) {
      const time = (total * i) / 4;
      parts.push(drawn("line", { x1: x(time), x2: x(time), y1: bottom, y2: bottom + 4 }));
      parts.push(drawn("text", { x: x(time), y: bottom + 15, "text-anchor": "middle" },
        String(Number(time.toPrecision(3)))));
    }
    parts.push(drawn("text", { x: 0, y: bottom + 15 }, "time, us"));
    parts.push(drawn("line", { x1: x(state.us), x2: x(state.us), y1: 0, y2: bottom, "stroke-dasharray": "2 2" }));
    lanes.setAttribute("viewBox", `0 0 ${wide} ${bottom + 20}`);
    lanes.setAttribute("aria-label", `at ${state.us} us`);
    lanes.replaceChildren(...parts);
  }

  function drawNext(state) {
    const parts = [];
    next.className = "d2l-bar";
    if (state.guessing && !state.over) {
      next.classList.add("d2l-question");
      const score = state.asked ? ` (${state.right} of ${state.asked} right)` : "";
      parts.push(element("b", {}, "Which operation can begin next? Click it, or say:"),
        button("none can", "No operation can begin before one ends", () => send({ kind: "guess", number: null })),
        element("span", { role: "status" }, `${state.problem}${score}`));
    } else if (state.over) {
      const score = state.asked ? ` ${state.right} of ${state.asked} guesses were right.` : "";
      parts.push(`It is over. They began in the order ${state.order.join(", ")}.${score}`);
    } else {
      parts.push(element("span", { class: "d2l-quiet" }, "possible now, as you choose:"));
      for (const [number, begins] of state.able) {
        const [n, b] = state.next;
        const pick = button(`${number} ${begins ? "begins" : "ends"}`, "Make this move",
          () => send({ kind: "step", number }));
        pick.setAttribute("aria-pressed", n === number && b === begins);
        parts.push(pick);
      }
      parts.push(element("span", { class: "d2l-quiet" }, "(underlined: what forward does)"));
    }
    next.replaceChildren(...parts);
  }

  function drawTold(state) {
    const lines = state.told.map((sentences) => {
      const [first, ...others] = sentences;
      const more = others.flatMap((sentence) => [element("br"), sentence]);
      return element("p", {}, element("b", {}, first), ...more);
    });
    told.replaceChildren(...lines);
    told.scrollTop = told.scrollHeight;
  }

  function update() {
    const state = stepper.state;
    if (!state) return;
    if (shown !== stepper.scene) drawGraph();
    for (const { to, g } of arrows) g.style.display = state.hidden.includes(to) ? "none" : "";
    for (const [number, { g, note, node }] of nodes) {
      const status = state.status[number];
      g.setAttribute("class", `d2l-node d2l-${status}`);
      g.setAttribute("aria-selected", number === selected);
      g.setAttribute("aria-label", `${node.title}: ${state.notes[number]}`);
      note.textContent = `${MARK[status]} ${state.notes[number]}`;
    }
    drawVariables(state);
    drawLanes(state);
    drawNext(state);
    drawTold(state);
    const of = nodes.get(selected)?.node;
    about.textContent = of
      ? `Selected: ${of.title}; ${of.name}, takes ${of.us} us; issued at ${of.where}: ${of.line}`
      : "Click an operation to select it.";
    clock.textContent = `move ${state.step}, at ${Number(state.us.toPrecision(4))} us`;
    if (document.activeElement !== seed) seed.value = state.seed ?? "";
    guessing.setAttribute("aria-pressed", state.guessing);
    back.disabled = reset.disabled = state.step === 0;
    forward.disabled = run.disabled = state.over || state.guessing;
    runTo.disabled = selected === null || state.guessing;
    box.dataset.step = state.step;
  }

  // An answer has come: the next move of a run follows it.
  function arrived() {
    clearTimeout(late);
    hint.textContent = "";
    update();
    if (playing && (stepper.state.over || stepper.state.guessing)) play(false);
    if (playing) setTimeout(() => playing && send({ kind: "step" }), 450);
  }

  update();
  return { arrived, end: () => { playing = false; clearTimeout(late); } };
}

export default () => {
  const stepper = { scene: null, state: null };
  const views = new Set();
  return {
    initialize({ model }) {
      listen(model, (header) => {
        if (header.nodes) stepper.scene = header;
        stepper.state = header.state;
        views.forEach((view) => view.arrived());
      });
    },
    render({ model, el }) {
      el.classList.add("d2l-widget");
      const view = stepperView(stepper, model, el);
      views.add(view);
      return () => {
        view.end();
        views.delete(view);
      };
    },
  };
};
