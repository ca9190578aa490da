// A panel of controls (widgets/panel.py): what can be turned, Run, Cancel, Clear, and the runs; of
// the memory dial a curve besides. The kernel tells everything (header.whole), or how the run
// stands (header.state), with new points of the curve (header.points). From here go
// { kind: "run", values }, { kind: "cancel" }, { kind: "clear" } and, if header.turns,
// { kind: "turn", values }. The values of choices are indices.

export default () => {
  const panel = { told: null, values: {}, images: [], curve: [] };
  const views = new Set();

  function take(header, buffers) {
    if (header.whole) {
      for (const { name, value } of header.controls) {
        if (header.turns || !(name in panel.values)) panel.values[name] = value;
      }
      if (header.curve) panel.curve = rows(buffers.pop());
      panel.told = header;
      // The old pictures are shown until the new ones are there.
      setTimeout((old) => old.forEach((url) => URL.revokeObjectURL(url)), 5000, panel.images);
      const blobs = buffers.map((each) => new Blob([each], { type: "image/png" }));
      panel.images = blobs.map((each) => URL.createObjectURL(each));
    } else if (panel.told) {
      panel.told.state = header.state ?? panel.told.state;
      if (header.points === "all") panel.curve = [];
      if (header.points) panel.curve.push(...rows(buffers[0]));
      if (header.points === "last") panel.curve.splice(0, panel.curve.length - 600);
    }
    views.forEach((view) => view(header.whole));
  }

  return {
    initialize({ model }) {
      listen(model, take);
    },
    render({ model, el }) {
      el.classList.add("d2l-widget", "d2l-panel");
      const parts = build(model, panel, el);
      el.append(...parts.elements);
      const view = (whole) => parts.update(whole);
      views.add(view);
      if (panel.told) view(true);
      onRestart(model, el);
      return () => {
        views.delete(view);
        parts.end();
      };
    },
  };
};

function build(model, panel, el) {
  const say = (kind) => () => model.send({ kind, values: panel.values });
  const title = element("div", { class: "d2l-panel-title" });
  const controls = element("div", { class: "d2l-panel-controls" });
  const run = button("Run", "Run with these values, in the background", say("run"));
  run.classList.add("d2l-panel-run");
  const cancel = button(
    "Cancel", "End the run at its next wait; twice: drop what is queued", say("cancel"),
  );
  const clear = button("Clear", "Forget the runs so far", say("clear"));
  const bar = element("progress", { class: "d2l-panel-progress", max: 1, value: 0 });
  bar.setAttribute("aria-label", "progress of the run");
  const text = element("span", { class: "d2l-panel-state d2l-quiet", role: "status" });
  const problem = element("pre", { class: "d2l-panel-problem d2l-mono", role: "alert" });
  const printed = element("pre", { class: "d2l-panel-printed d2l-mono" });
  const images = element("div", { class: "d2l-panel-images" });
  const table = element("div", { class: "d2l-panel-table" });
  const buttons = element("div", { class: "d2l-bar" }, run, cancel, clear, bar, text);
  const live = element("div", { class: "d2l-panel-curve" });
  let curve = null;
  let made = "";
  let setters = [];

  const forget = onTheme(() => curve?.again());

  function count() {
    if (curve) curve.canvas.dataset.events = panel.curve.length;
  }

  function update(whole) {
    const { told, values } = panel;
    const { state } = told;
    enable(run, !state.running);
    enable(cancel, state.running);
    enable(clear, !state.running && told.rows.length);
    text.textContent = state.text;
    bar.hidden = !state.running;
    if (state.total) [bar.max, bar.value] = [state.total, Math.min(state.done, state.total)];
    else bar.removeAttribute("value"); // it moves to and fro: nobody knows how far it is
    problem.textContent = state.problem;
    problem.hidden = !state.problem;
    el.dataset.runs = told.rows.length;
    count();
    el.dataset.state = state.running ? "running" : "idle";
    curve?.again();
    if (!whole) return;
    title.textContent = told.name;
    buttons.hidden = !told.runs;
    const shape = JSON.stringify(told.controls.map((each) => ({ ...each, value: 0 })));
    if (made !== shape) {
      made = shape;
      const turned = told.turns ? say("turn") : () => {};
      const all = told.controls.map((each) => control(each, values, turned));
      controls.replaceChildren(...all.map(({ label }) => label));
      setters = all.map(({ set }) => set);
    } else {
      told.controls.forEach(({ name }, at) => setters[at](values[name]));
    }
    if (told.curve && !curve) {
      el.classList.add("d2l-dial");
      curve = drawing(170, (context, width, height) => plot(context, width, height, panel.curve, el));
      curve.canvas.setAttribute("aria-label", "pending bytes and bytes of arrays over time");
      live.append(curve.canvas, legend());
      count();
    }
    printed.textContent = told.printed;
    printed.hidden = !told.printed;
    images.replaceChildren(
      ...panel.images.map((src) => element("img", { src, alt: `runs of ${told.name}` })),
    );
    table.replaceChildren(...(told.rows.length ? [tableOf(told)] : []));
    table.scrollTop = table.scrollHeight;
  }

  const end = () => {
    forget();
    curve?.end();
  };
  const elements = [title, controls, buttons, live, problem, printed, images, table];
  return { elements, update, end };
}

// A labelled row: the control itself and what it stands at; `set` puts it there from outside.
function control(each, values, turned) {
  const shown = element("output", { class: "d2l-mono", "aria-live": "off" });
  const label = element("label", {}, element("span", {}, each.name));
  const say = () => {
    const at = values[each.name];
    shown.textContent = `${each.choices ? each.choices[at] : brief(at)} ${each.unit}`.trim();
  };
  const take = (value) => {
    values[each.name] = value;
    say();
  };
  let input;
  let show;
  if (each.kind === "switch") {
    input = element("input", { type: "checkbox" });
    input.addEventListener("change", () => take(input.checked));
    show = (value) => (input.checked = value);
    label.append(input, shown);
  } else if (each.kind === "choice" && !each.rising) {
    const names = each.choices.map((word, at) => element("option", { value: at }, word));
    input = element("select", { class: "d2l-button" }, ...names);
    input.addEventListener("change", () => take(Number(input.value)));
    show = (value) => (input.value = value);
    label.append(input);
  } else {
    // A slider counts its steps, so that 0.1 + 0.2 is not met.
    const [low, step] = each.choices ? [0, 1] : [each.low, each.step];
    const high = each.choices ? each.choices.length - 1 : each.high;
    const most = Math.floor((high - low) / step + 1e-9);
    input = element("input", { type: "range", min: 0, max: most, step: 1 });
    input.addEventListener("input", () => take(low + step * Number(input.value)));
    show = (value) => (input.value = Math.round((value - low) / step));
    label.append(input, shown);
  }
  input.addEventListener("change", turned);
  input.setAttribute("aria-label", each.name);
  // So that the arrows move the slider and not the notebook, whose keys JupyterLab takes first.
  input.dataset.lmSuppressShortcuts = "true";
  const set = (value) => {
    show(value);
    say();
  };
  set(values[each.name]);
  return { label, set };
}

function brief(value) {
  if (typeof value === "boolean") return value ? "True" : "False";
  return String(Number(value.toPrecision(6)));
}

function tableOf({ head, rows }) {
  const cells = (tag, words) => words.map((word) => element(tag, {}, word));
  const lines = rows.map((row, at) =>
    element("tr", { class: at === rows.length - 1 ? "d2l-panel-last" : "" }, ...cells("td", row)),
  );
  return element(
    "table", {},
    element("thead", {}, element("tr", {}, ...cells("th", head))),
    element("tbody", {}, ...lines),
  );
}

// -- the curve of the memory dial -----------------------------------------------------------------

// (seconds, pending, in arrays, limit) as rows.
function rows(view) {
  const all = numbers(view);
  return Array.from({ length: all.length / 4 }, (_, at) => all.subarray(4 * at, 4 * at + 4));
}

function legend() {
  const line = (kind, word) => element("span", { class: "d2l-legend-entry" },
    element("span", { class: `d2l-panel-line d2l-panel-${kind}`, "aria-hidden": "true" }), word);
  return element("div", { class: "d2l-legend" },
    legendEntry("accent", "pending: pushed and not computed yet"),
    line("arrays", "in arrays"), line("limit", "limit on pending"));
}

function plot(context, width, height, points, el) {
  const colour = palette(el);
  const [left, bottom, top, right] = [62, 30, 8, 12];
  const [wide, high] = [width - left - right, height - bottom - top];
  const first = points.length && points[0][0] > 1 ? points[0][0] : 0;
  const last = Math.max(first + 1, points.length ? points[points.length - 1][0] : 0);
  const most = Math.max(1e6, ...points.map(([, pending, arrays]) => Math.max(pending, arrays)));
  const limit = points.length ? points[points.length - 1][3] : 0;
  // The limit is in the picture as soon as it is near what is pending.
  const seen = limit < 1.6 * most ? Math.max(most, limit) : most;
  const step = niceStep(1.05 * seen, 4);
  const full = step * Math.ceil((1.02 * seen) / step);
  const x = (seconds) => left + (wide * (seconds - first)) / (last - first);
  const y = (nbytes) => top + high * (1 - Math.min(nbytes, 1.01 * full) / full);

  context.font = `11px ${colour("font") || "sans-serif"}`;
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (let at = 0; at <= full * 1.001; at += step) {
    context.strokeStyle = colour("line");
    stroke(context, [[left, y(at)], [left + wide, y(at)]]);
    context.fillStyle = colour("quiet");
    context.fillText(inBytes(at).replace(/^0 B$/, "0"), left - 6, y(at));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const tick = niceStep(last - first, 6);
  const end = left + wide - context.measureText("seconds").width;
  for (let at = Math.ceil(first / tick) * tick; at <= last + 1e-9; at += tick) {
    if (x(at) + context.measureText(brief(at)).width / 2 < end - 8) {
      context.fillText(brief(at), x(at), height - bottom + 6);
    }
  }
  context.textAlign = "right";
  context.fillText("seconds", left + wide, height - bottom + 6);
  if (points.length < 2) return;

  const pending = points.map((point) => [x(point[0]), y(point[1])]);
  context.fillStyle = colour("accent");
  context.globalAlpha = 0.75;
  context.beginPath();
  context.moveTo(x(first), y(0));
  pending.forEach(([px, py]) => context.lineTo(px, py));
  context.lineTo(x(points[points.length - 1][0]), y(0));
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = colour("accent-edge");
  stroke(context, pending);
  context.strokeStyle = colour("text");
  stroke(context, points.map((point) => [x(point[0]), y(point[2])]));
  context.strokeStyle = colour("accent-edge");
  context.lineWidth = 2;
  context.setLineDash([2, 3]);
  const bound = points.filter((point) => point[3] <= full);
  if (bound.length) stroke(context, bound.map((point) => [x(point[0]), y(point[3])]));
  context.setLineDash([]);
  if (!bound.length && limit) {
    context.fillStyle = colour("quiet");
    context.textAlign = "right";
    context.fillText(`limit: ${inBytes(limit)}, above`, left + wide, top);
  }
}

function stroke(context, places) {
  context.beginPath();
  places.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

// 1, 2 or 5 times a power of ten: at most about `parts` of them in `length`.
function niceStep(length, parts) {
  const power = 10 ** Math.floor(Math.log10(length / parts));
  return power * [1, 2, 5, 10].find((factor) => factor * power * parts >= length);
}
