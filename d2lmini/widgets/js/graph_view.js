// The graph view. Python sends everything once: { views: [{ title, stages }], kinds }; which stage
// one looks at, and at which box, is the view's own. Nothing here asks the kernel.

function graphView(held, el) {
  let which = 0;
  let at = 0; // which stage
  let pinned = null;
  let shown = null;
  const boxes = [];

  const graphs = element("select", { "aria-label": "which graph", onchange: () => go(Number(graphs.value), 0) });
  const stages = element("span", { role: "group", "aria-label": "stages of the compiler" });
  const total = element("div", {});
  const svg = drawn("svg", { role: "group" });
  const facts = element("div", { "aria-live": "polite" });
  const arena = element("div", {});
  const legend = element("div", { class: "d2l-legend" });
  const box = element("div", { class: "d2l-graph-view", tabindex: "0", onkeydown: key,
    "data-lm-suppress-shortcuts": "true" },
  element("div", { class: "d2l-bar" }, graphs, stages), total,
  element("div", { class: "d2l-sides" },
    element("div", { class: "d2l-graph" }, svg),
    element("div", { class: "d2l-side" }, facts, arena)),
  legend);
  el.append(box);

  function go(view, stage) {
    const many = held.data.views[view].stages.length;
    [which, at, pinned] = [view, Math.max(0, Math.min(stage, many - 1)), null];
    update();
  }

  function key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || event.target === graphs) return;
    event.preventDefault();
    event.stopPropagation();
    go(which, at + by);
  }

  // Look at a box: what is known of it, and its arrows.
  function point(number) {
    const stage = held.data.views[which].stages[at];
    boxes.forEach(({ g }, i) => g.classList.toggle("d2l-pointed", i === number));
    for (const arrow of svg.querySelectorAll(".d2l-arrow")) {
      const touches = number !== null && [arrow.dataset.from, arrow.dataset.to].includes(String(number));
      arrow.classList.toggle("d2l-pointed", touches);
    }
    const each = stage.boxes[number];
    if (!each) {
      const hint = "Point at a box: shapes, FLOPs, bytes, its line. A click keeps it here.";
      facts.replaceChildren(element("p", { class: "d2l-quiet" }, hint));
      return;
    }
    const rows = each.facts.flatMap(([what, value]) => [element("dt", {}, what),
      element("dd", { class: what === "line" ? "d2l-mono" : "" }, value)]);
    const means = each.parts.length ? "fused: one pass over memory" : held.data.kinds[each.kind];
    facts.replaceChildren(element("h4", {}, each.lines[0]),
      element("dl", {}, element("dt", {}, "kind"), element("dd", {}, means), ...rows));
  }

  function drawBox(each, number) {
    const { x, y, width, height } = each;
    const corner = each.kind === "variable" ? height / 2 : 4;
    const g = drawn("g", { class: `d2l-box d2l-${each.kind} ${each.output ? "d2l-result" : ""}`,
      tabindex: "0", role: "button", "aria-label": [...each.lines, ...each.parts].join(", ") });
    g.append(drawn("rect", { x: x - width / 2, y, width, height, rx: corner }));
    g.append(drawn("rect", { x: x - width / 2 - 3, y: y - 3, width: width + 6, height: height + 6, rx: corner + 3,
      class: "d2l-mark" }));
    let down = y + 2;
    each.lines.forEach((line, i) => {
      down += 13;
      g.append(drawn("text", { x: x - (each.new && i === 0 ? 12 : 0), y: down, class: i ? "" : "d2l-first" }, line));
    });
    if (each.new) g.append(drawn("text", { x: x + width / 2 - 6, y: y + 14, class: "d2l-new" }, "new"));
    for (const part of each.parts) {
      g.append(drawn("rect", { x: x - width / 2 + 8, y: down + 5, width: width - 16, height: 14, rx: 3,
        class: "d2l-part" }));
      down += 17;
      g.append(drawn("text", { x, y: down - 1.5, class: "d2l-in-part" }, part));
    }
    g.addEventListener("pointerenter", () => point(number));
    g.addEventListener("pointerleave", () => point(pinned));
    g.addEventListener("focus", () => point(number));
    g.addEventListener("click", () => {
      pinned = number;
      point(number);
    });
    return g;
  }

  function drawArena(found) {
    if (!found) return arena.replaceChildren();
    const [wide, high, left, top] = [300, 110, 46, 6];
    const steps = Math.max(...found.lives.map(([, , end]) => end)) + 1;
    const x = (step) => left + ((wide - left - 6) * step) / steps;
    const y = (offset) => top + high - (high * offset) / found.nbytes;
    const names = [];
    const parts = found.lives.map(([name, begin, end, offset, nbytes]) => {
      const rect = drawn("rect", { x: x(begin), y: y(offset + nbytes), width: x(end + 1) - x(begin),
        height: Math.max(y(offset) - y(offset + nbytes), 1) });
      rect.append(drawn("title", {}, `${name}: ${inBytes(nbytes)} from byte ${offset}, statements ${begin + 1} to ${end + 1}`));
      const fits = x(end + 1) - x(begin) > 5.2 * name.length && y(offset) - y(offset + nbytes) > 12;
      const middle = { x: (x(begin) + x(end + 1)) / 2, y: (y(offset) + y(offset + nbytes)) / 2 + 3 };
      if (fits) names.push(drawn("text", { ...middle, "text-anchor": "middle" }, name));
      return rect;
    });
    parts.push(...names);
    const bottom = top + high;
    parts.push(drawn("line", { x1: left, x2: left, y1: top, y2: bottom }));
    parts.push(drawn("line", { x1: left, x2: wide - 6, y1: bottom, y2: bottom }));
    parts.push(drawn("text", { x: left - 4, y: top + 8, "text-anchor": "end" }, inBytes(found.nbytes)));
    parts.push(drawn("text", { x: left - 4, y: bottom, "text-anchor": "end" }, "0"));
    for (let step = 0; step < steps; step += Math.ceil(steps / 12)) {
      parts.push(drawn("text", { x: (x(step) + x(step + 1)) / 2, y: bottom + 12, "text-anchor": "middle" }, String(step + 1)));
    }
    parts.push(drawn("text", { x: left, y: bottom + 26 }, "statements, from the first to the last that needs it"));
    const again = found.separately > found.nbytes ? `; ${inBytes(found.separately)} if each had its own` : "";
    const picture = drawn("svg", { class: "d2l-arena", viewBox: `0 0 ${wide} ${bottom + 32}`, role: "img",
      "aria-label": "memory of intermediate results" }, ...parts);
    arena.replaceChildren(element("h4", {}, `Memory between statements: ${inBytes(found.nbytes)}${again}`), picture);
  }

  function drawLegend(stage) {
    const entry = (rect, name, word) => element("span", { class: "d2l-legend-entry" },
      drawn("svg", { width: 24, height: 16 }, drawn("g", { class: `d2l-box d2l-${name}` }, drawn("rect", rect))), word);
    const used = Object.keys(held.data.kinds).filter((kind) => stage.boxes.some((each) => each.kind === kind));
    const parts = used.map((kind) => entry({ x: 2, y: 3, width: 20, height: 10, rx: kind === "variable" ? 5 : 2 }, kind, held.data.kinds[kind]));
    if (stage.boxes.some((each) => each.output)) parts.push(entry({ x: 2, y: 3, width: 20, height: 10, rx: 2 }, "result", "a result"));
    if (stage.edges.some((edge) => !edge.value)) parts.push("dashed arrow: overwrites what that one reads or wrote");
    if (stage.boxes.some((each) => each.parts.length)) parts.push("boxes in a box: done in one pass");
    legend.replaceChildren(...parts);
  }

  function update() {
    if (!held.data) return;
    const { views } = held.data;
    const { stages: all } = views[which];
    const stage = all[at];
    if (graphs.options.length !== views.length) {
      graphs.replaceChildren(...views.map((view, i) => element("option", { value: i }, view.title)));
    }
    graphs.value = which;
    graphs.hidden = views.length === 1;
    stages.replaceChildren(...all.map((each, i) => {
      const made = button(each.name, each.words, () => go(which, i));
      made.setAttribute("aria-pressed", i === at);
      return made;
    }));
    total.replaceChildren(element("b", {}, stage.total), element("span", { class: "d2l-quiet" }, ` — ${stage.words}`));
    if (shown !== stage) {
      shown = stage;
      const [width, height] = stage.size;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.style.width = "100%"; // smaller where there is less room, as long as it can be read
      svg.style.maxWidth = `${width}px`;
      svg.style.minWidth = `${0.78 * width}px`;
      boxes.length = 0;
      const arrows = stage.edges.map((edge) => {
        const g = drawn("g", { class: `d2l-arrow ${edge.value ? "" : "d2l-room"}`, "data-from": edge.from, "data-to": edge.to });
        g.append(drawn("path", { d: edge.path }), drawn("path", { d: edge.head }));
        return g;
      });
      stage.boxes.forEach((each, i) => boxes.push({ g: drawBox(each, i) }));
      svg.replaceChildren(...arrows, ...boxes.map(({ g }) => g));
      drawArena(stage.arena);
      drawLegend(stage);
      point(null);
    }
    box.dataset.stage = stage.name;
  }

  update();
  return update;
}

export default () => {
  const held = { data: null };
  const views = new Set();
  return {
    initialize({ model }) {
      listen(model, (header) => {
        held.data = header;
        views.forEach((update) => update());
      });
    },
    render({ model, el }) {
      el.classList.add("d2l-widget");
      const update = graphView(held, el);
      views.add(update);
      onRestart(model, el);
      return () => views.delete(update);
    },
  };
};
