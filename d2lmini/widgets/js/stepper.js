// The stepper. Python sends { scene, workers, longest, state } once and { state } after every move;
// all that is drawn follows from these. What is chosen here (an operation) is the view's own.

// How each state is marked beside its colour.
const MARK = { waiting: "…", ahead: "?", later: "", ready: "▷", running: "▶", done: "✓",
  failed: "✗", skipped: "✗" };

function take(stepper, header) {
  if (header.scene) stepper.whole = header;
  stepper.state = header.state;
}

function build(stepper, model, el) {
  let late = 0;
  let selected = null;
  let playing = false;
  let shown = null; // what is in the page, and its groups
  let picture = { arrows: [], boxes: [] };
  const send = (kind, more = {}) => {
    model.send({ kind, ...more });
    clearTimeout(late);
    late = setTimeout(() => { hint.textContent = "the kernel is busy"; }, 1500);
  };

  // -- the page -----------------------------------------------------------------------------------
  const forward = button("forward ▶", "The next move (right arrow)", () => send("step"));
  const run = button("run", "Move until it is over, one move after the other (End)", () => play(!playing));
  const reset = button("reset", "To the beginning (Home)", () => again());
  const guessing = button("guess", "Before each move: which operation can begin next?",
    () => send("guessing", { on: !stepper.state.guessing }));
  const clock = element("span", { class: "d2l-clock" });
  const hint = element("span", { class: "d2l-quiet", role: "status" });
  const next = element("div", { class: "d2l-bar" });
  const svg = drawn("svg", { role: "group", "aria-label": "the operations and what they wait for" });
  const variables = element("table");
  const lanes = drawn("svg", { class: "d2l-lanes", role: "img" });
  const told = element("div", { class: "d2l-told", role: "log", "aria-label": "what happened" });
  const about = element("div", { class: "d2l-quiet" });
  const box = element("div", { class: "d2l-stepper d2l-framed", tabindex: "0", onkeydown: key,
    "data-lm-suppress-shortcuts": "true" },
  element("div", { class: "d2l-bar" }, forward, run, reset, guessing, clock, hint),
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
    const icon = (name, ...parts) => drawn("svg", { width: 26, height: 16 }, drawn("g", { class: name }, ...parts));
    const swatch = (name, word) => legendEntry(icon(`d2l-box d2l-${name}`,
      drawn("rect", { x: 2, y: 2, width: 22, height: 12, rx: 3, class: "d2l-body" })), `${MARK[name]} ${word}`);
    const arrow = (name, word) => legendEntry(icon(`d2l-arrow ${name}`,
      drawn("path", { d: "M1 8L18 8" }), drawn("path", { d: "M17 4L24 8L17 12z" })), word);
    return element("div", { class: "d2l-legend" },
      swatch("waiting", "waits"), swatch("ready", "ready"), swatch("running", "runs"),
      swatch("done", "done"), swatch("later", "not issued yet"), swatch("ahead", "to be guessed"),
      arrow("", "needs the value"), arrow("d2l-room", "overwrites what that one reads or wrote"),
      legendEntry(chip(2, false, true), "reads"), legendEntry(chip(4, true, true), "writes"),
      legendEntry(chip(4, true, false), "in line"));
  }

  // -- what one does ------------------------------------------------------------------------------
  function again() {
    play(false);
    send("reset");
  }

  function play(on) {
    playing = on && !stepper.state.over;
    run.textContent = playing ? "pause" : "run";
    run.setAttribute("aria-pressed", playing);
    if (playing) send("step");
  }

  function key(event) {
    const does = {
      ArrowRight: () => !stepper.state.guessing && send("step"),
      Home: again,
      End: () => !stepper.state.guessing && send("run"),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    play(false);
    does();
  }

  function choose(number) {
    if (stepper.state.guessing && !stepper.state.over) send("guess", { number });
    selected = number;
    draw();
  }

  // -- what one sees ------------------------------------------------------------------------------
  function chip(number, writes, holds) {
    const name = `d2l-chip ${writes ? "d2l-writes" : "d2l-reads"} ${holds ? "" : "d2l-queued"}`;
    const does = holds ? (writes ? "writes" : "reads") : writes ? "waits to write" : "waits to read";
    return element("span", { class: name, title: `${number} ${does}` }, `${number} ${writes ? "W" : "R"}`);
  }

  function drawOperations({ status, notes, hidden }) {
    const { scene } = shown;
    picture.arrows.forEach((g, i) => {
      g.style.display = hidden.includes(scene.edges[i].to + 1) ? "none" : "";
    });
    picture.boxes.forEach((g, i) => {
      const n = i + 1;
      g.setAttribute("class", `d2l-box d2l-${status[n]} ${n === selected ? "d2l-pointed" : ""}`);
      g.setAttribute("aria-label", `${scene.boxes[i].lines[0]}: ${notes[n]}`);
      g.lastChild.textContent = `${MARK[status[n]]} ${notes[n]}`;
    });
  }

  function drawVariables({ vars }) {
    const rows = vars.map(({ name, value, line }) => element("tr", {},
      element("td", { class: "d2l-mono" }, name),
      element("td", { class: "d2l-value", title: value }, value),
      element("td", {}, ...(line.length ? line.map((each) => chip(...each)) : ["idle"]))));
    const head = ["array", "holds", "held by, then in line"].map((word) => element("th", {}, word));
    const hides = element("tr", {}, element("td", {}, "hidden while you guess"));
    variables.replaceChildren(...(rows.length ? [element("tr", {}, ...head), ...rows] : [hides]));
  }

  function drawLanes({ spans, us }) {
    const [wide, left, high] = [340, 56, 20];
    const total = Math.max(4 * shown.longest, 1e-9, ...spans.map(([, , , end]) => end));
    const x = (time) => left + ((wide - left - 12) * time) / total;
    const bottom = shown.workers.length * high;
    const text = (words, at, y, anchor = "middle") => drawn("text", { x: at, y, "text-anchor": anchor }, words);
    const parts = shown.workers.map((name, i) => text(name, 0, i * high + 14, "start"));
    for (const [worker, n, began, end, going] of spans) {
      const y = shown.workers.indexOf(worker) * high;
      const width = Math.max(x(end) - x(began), 1);
      parts.push(drawn("rect", { x: x(began), y: y + 2, width, height: high - 4,
        class: going ? "d2l-running" : "d2l-done" }));
      if (width > 12) parts.push(text(n, x(began) + width / 2, y + 14));
    }
    for (const [time, word] of ticks(0, total, 5)) parts.push(text(word, x(time), bottom + 14));
    parts.push(text("time, us", 0, bottom + 14, "start"),
      drawn("path", { d: `M${left} ${bottom}H${x(total)}` }),
      drawn("path", { d: `M${x(us)} 0V${bottom}`, "stroke-dasharray": "2 2" }));
    lanes.setAttribute("viewBox", `0 0 ${wide} ${bottom + 20}`);
    lanes.setAttribute("aria-label", `at ${us} us`);
    lanes.replaceChildren(...parts);
  }

  function drawNext(state) {
    next.classList.toggle("d2l-question", state.guessing && !state.over);
    const score = state.asked ? ` (${state.right} of ${state.asked} right)` : "";
    const parts = [];
    if (state.over) {
      parts.push(`It is over. They began in the order ${state.order.join(", ")}.${score}`);
    } else if (state.guessing) {
      parts.push(element("b", {}, "Which operation can begin next? Click it, or say:"),
        button("none can", "No operation can begin before one ends", () => send("guess", { number: null })),
        element("span", { role: "status" }, `${state.problem}${score}`));
    } else {
      parts.push(element("span", { class: "d2l-quiet" }, "possible now, as you choose:"));
      for (const [number, begins] of state.able) {
        const pick = button(`${number} ${begins ? "begins" : "ends"}`, "Make this move",
          () => send("step", { number }));
        pick.setAttribute("aria-pressed", state.next[0] === number && state.next[1] === begins);
        parts.push(pick);
      }
      parts.push(element("span", { class: "d2l-quiet" }, "(underlined: what forward does)"));
    }
    next.replaceChildren(...parts);
  }

  function drawTold(state) {
    told.replaceChildren(...state.told.map(([first, ...others]) => element("p", {}, element("b", {}, first),
      ...others.flatMap((sentence) => [element("br"), sentence]))));
    told.scrollTop = told.scrollHeight;
  }

  function draw() {
    const state = stepper.state;
    if (!state) return;
    if (shown !== stepper.whole) {
      shown = stepper.whole;
      picture = drawGraph(svg, shown.scene, (at) => choose(at + 1));
    }
    drawOperations(state);
    drawVariables(state);
    drawLanes(state);
    drawNext(state);
    drawTold(state);
    const words = selected && `Selected: ${shown.scene.boxes[selected - 1].about}`;
    about.textContent = words || "Click an operation to select it.";
    clock.textContent = `move ${state.step}, at ${Number(state.us.toPrecision(4))} us`;
    guessing.setAttribute("aria-pressed", state.guessing);
    enable(reset, state.step > 0);
    for (const each of [forward, run]) enable(each, !state.over && !state.guessing);
    box.dataset.step = state.step;
  }

  // An answer has come: the next move of a run follows it.
  function update() {
    clearTimeout(late);
    hint.textContent = "";
    draw();
    if (playing && (stepper.state.over || stepper.state.guessing)) play(false);
    if (playing) setTimeout(() => playing && send("step"), 450);
  }

  draw();
  return { update, end: () => { playing = false; clearTimeout(late); } };
}

export default widgetOf(() => ({ whole: null, state: null }), take, build);
