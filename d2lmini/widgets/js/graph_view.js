// The graph view. Python sends everything once: { views: [{ title, stages }], kinds }; which stage
// one looks at, and at which box, is the view's own. Nothing here asks the kernel.

function take(state, header) {
  state.data = header;
}

function build(state, model, el) {
  let which = 0;
  let at = 0; // which stage
  let pinned = null;
  let shown = null;
  let picture = { arrows: [], boxes: [] };

  const graphs = element("select", { class: "d2l-input", "aria-label": "which graph",
    onchange: () => go(Number(graphs.value), 0) });
  const stages = element("span", { role: "group", "aria-label": "stages of the compiler" });
  const total = element("div");
  const svg = drawn("svg", { role: "group" });
  const facts = element("div", { class: "d2l-side", "aria-live": "polite" });
  const legend = element("div", { class: "d2l-legend" });
  const box = element("div", { class: "d2l-graph-view d2l-framed", tabindex: "0", onkeydown: key,
    "data-lm-suppress-shortcuts": "true" },
  element("div", { class: "d2l-bar" }, graphs, stages), total,
  element("div", { class: "d2l-sides" }, element("div", { class: "d2l-graph" }, svg), facts), legend);
  el.append(box);

  function go(view, stage) {
    const many = state.data.views[view].stages.length;
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
    picture.boxes.forEach((g, i) => g.classList.toggle("d2l-pointed", i === number));
    shown.edges.forEach(({ from, to }, i) =>
      picture.arrows[i].classList.toggle("d2l-pointed", from === number || to === number));
    const each = shown.boxes[number];
    if (!each) {
      const hint = "Point at a box: shapes, FLOPs, bytes, its line. A click keeps it here.";
      facts.replaceChildren(element("p", { class: "d2l-quiet" }, hint));
      return;
    }
    const means = each.parts.length ? "fused: one pass over memory" : state.data.kinds[each.kind];
    facts.replaceChildren(element("h4", {}, each.lines[0]),
      element("dl", { class: "d2l-terms" }, ...termList([["kind", means], ...each.facts])));
  }

  function drawStage(stage) {
    shown = stage;
    picture = drawGraph(svg, stage, (number) => point(pinned = number));
    picture.boxes.forEach((g, number) => {
      g.addEventListener("pointerenter", () => point(number));
      g.addEventListener("pointerleave", () => point(pinned));
      g.addEventListener("focus", () => point(number));
    });
    const swatch = (name, word, rx = 2) => legendEntry(drawn("svg", { width: 24, height: 16 },
      drawn("g", { class: `d2l-box d2l-${name}` },
        drawn("rect", { x: 2, y: 3, width: 20, height: 10, rx, class: "d2l-body" }))), word);
    const { kinds } = state.data;
    const used = Object.keys(kinds).filter((kind) => stage.boxes.some((each) => each.kind === kind));
    const parts = used.map((kind) => swatch(kind, kinds[kind], kind === "variable" ? 5 : 2));
    if (stage.boxes.some((each) => each.output)) parts.push(swatch("result", "a result"));
    if (stage.boxes.some((each) => each.parts.length)) parts.push("boxes in a box: done in one pass");
    legend.replaceChildren(...parts);
    point(null);
  }

  function update() {
    if (!state.data) return;
    const { views } = state.data;
    const all = views[which].stages;
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
    const words = element("span", { class: "d2l-quiet" }, ` — ${stage.words}`);
    total.replaceChildren(element("b", {}, stage.total), words);
    if (shown !== stage) drawStage(stage);
    box.dataset.stage = stage.name;
  }

  update();
  return { update };
}

export default widgetOf(() => ({ data: null }), take, build);
