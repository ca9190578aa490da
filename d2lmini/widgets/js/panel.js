// A panel of controls (widgets/panel.py): what can be turned, Run, Cancel, Clear, and the runs; of
// the memory dial a curve besides. The kernel tells everything (header.whole), or how the run
// stands (header.state); header.curve is the curve. From here go
// { kind: "run", values }, { kind: "cancel" }, { kind: "clear" } and, if header.turns,
// { kind: "turn", values }. The values of choices are indices.

function start() {
  return { told: null, values: {}, images: [], curve: [] };
}

function take(panel, header, buffers) {
  if (header.curve) panel.curve = header.curve; // (seconds, pending, in arrays, limit) as rows
  if (header.whole) {
    for (const { name, value } of header.controls) {
      if (header.turns || !(name in panel.values)) panel.values[name] = value;
    }
    panel.told = header;
    // The old pictures are shown until the new ones are there.
    setTimeout((old) => old.forEach((url) => URL.revokeObjectURL(url)), 5000, panel.images);
    const blobs = buffers.map((each) => new Blob([each], { type: "image/png" }));
    panel.images = blobs.map((each) => URL.createObjectURL(each));
  } else if (panel.told) panel.told.state = header.state;
}

function build(panel, model, el) {
  el.classList.add("d2l-panel", "d2l-framed");
  const say = (kind) => () => model.send({ kind, values: panel.values });
  const title = element("b");
  const controls = element("div", { class: "d2l-panel-controls" });
  const run = button("Run", "Run with these values, in the background", say("run"));
  const cancel = button(
    "Cancel", "End the run at its next wait; twice: drop what is queued", say("cancel"),
  );
  const clear = button("Clear", "Forget the runs so far", say("clear"));
  const bar = element("progress", { max: 1, value: 0, "aria-label": "progress of the run" });
  const text = element("span", { class: "d2l-quiet", role: "status" });
  const problem = element("pre", { class: "d2l-panel-problem", role: "alert" });
  const images = element("div");
  const table = element("div", { class: "d2l-panel-table" });
  const live = element("div");
  let curve = null;
  let made = "";
  let setters = [];
  el.append(title, controls, element("div", { class: "d2l-bar" }, run, cancel, clear, bar, text), live,
    problem, images, table);

  function update(header) {
    const { told, values } = panel;
    if (!told) return;
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
    Object.assign(el.dataset, { runs: told.rows.length, state: state.running ? "running" : "idle" });
    if (told.curve && !curve) {
      el.classList.add("d2l-dial");
      curve = drawing(170, el, (pen) => plot(pen, panel.curve));
      curve.canvas.setAttribute("aria-label", "pending bytes and bytes of arrays over time");
      live.append(curve.canvas, element("div", { class: "d2l-legend" },
        legendEntry("accent", "pending: pushed and not computed yet"),
        legendEntry(lineMark("text"), "in arrays"),
        legendEntry(lineMark("accent-edge", [2, 3]), "limit on pending")));
    }
    if (curve) {
      curve.canvas.dataset.events = panel.curve.length;
      curve.again();
    }
    if (!header.whole) return;
    title.textContent = told.name;
    const shape = JSON.stringify(told.controls.map((each) => ({ ...each, value: 0 })));
    if (made !== shape) {
      made = shape;
      const all = told.controls.map((each) => control(each, values, told.turns ? say("turn") : () => {}));
      controls.replaceChildren(...all.map(({ label }) => label));
      setters = all.map(({ set }) => set);
    } else told.controls.forEach(({ name }, at) => setters[at](values[name]));
    const alt = `runs of ${told.name}`;
    images.replaceChildren(...panel.images.map((src) => element("img", { src, alt })));
    table.replaceChildren(...(told.rows.length ? [tableOf(told)] : []));
    table.scrollTop = table.scrollHeight;
  }

  update({ whole: true });
  return { update, end: () => curve?.end() };
}

// A labelled row: the control itself and what it stands at; `set` puts it there from outside.
function control(each, values, turned) {
  const shown = element("output", { class: "d2l-mono", "aria-live": "off" });
  let input;
  let show;
  const say = () => {
    const at = values[each.name];
    const words = each.kind === "switch" ? (at ? "True" : "False") : Number(at?.toPrecision?.(6));
    shown.textContent = `${each.choices ? each.choices[at] : words} ${each.unit}`.trim();
  };
  const take = (value) => {
    values[each.name] = value;
    say();
  };
  if (each.kind === "switch") {
    input = element("input", { type: "checkbox", onchange: () => take(input.checked) });
    show = (value) => (input.checked = value);
  } else if (each.kind === "choice" && !each.rising) {
    const names = each.choices.map((word, at) => element("option", { value: at }, word));
    input = element("select", { class: "d2l-input", onchange: () => take(Number(input.value)) }, ...names);
    show = (value) => (input.value = value);
    shown.hidden = true;
  } else {
    // A slider counts its steps, so that 0.1 + 0.2 is not met.
    const [low, step] = each.choices ? [0, 1] : [each.low, each.step];
    const high = each.choices ? each.choices.length - 1 : each.high;
    const max = Math.floor((high - low) / step + 1e-9);
    input = element("input", { type: "range", min: 0, max, step: 1,
      oninput: () => take(low + step * Number(input.value)) });
    show = (value) => (input.value = Math.round((value - low) / step));
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
  return { label: element("label", {}, element("span", {}, each.name), input, shown), set };
}

function tableOf({ head, rows }) {
  const row = (tag, words) => element("tr", {}, ...words.map((word) => element(tag, {}, word)));
  return element("table", {}, element("thead", {}, row("th", head)),
    element("tbody", {}, ...rows.map((words) => row("td", words))));
}

// The curve of the memory dial.
function plot(pen, points) {
  const [left, right, top, bottom] = [62, pen.width - 12, 8, pen.height - 30];
  const last = Math.max(1, points.at(-1)?.[0] ?? 0);
  const most = Math.max(1e6, ...points.map(([, pending, arrays]) => Math.max(pending, arrays)));
  const limit = points.at(-1)?.[3] ?? 0;
  // The limit is in the picture as soon as it is near what is pending.
  const seen = limit < 1.6 * most ? Math.max(most, limit) : most;
  const step = niceStep(1.05 * seen, 4);
  const full = step * Math.ceil((1.02 * seen) / step);
  const x = (seconds) => left + ((right - left) * seconds) / last;
  const y = (nbytes) => bottom - ((bottom - top) * Math.min(nbytes, 1.01 * full)) / full;
  const quiet = { align: "right", colour: "quiet" };
  for (let at = 0; at <= full * 1.001; at += step) {
    pen.line([[left, y(at)], [right, y(at)]], "line");
    pen.text(inBytes(at), left - 6, y(at), quiet);
  }
  for (const [at, word] of ticks(0, last, 6)) {
    if (x(at) < right - 60) pen.text(word, x(at), bottom + 12, { align: "center", colour: "quiet" });
  }
  pen.text("seconds", right, bottom + 12, quiet);
  if (points.length < 2) return;
  const line = (column) => points.map((point) => [x(point[0]), y(point[column])]);
  pen.line(line(1), "accent-edge", { down: bottom, fill: "accent" });
  pen.line(line(2), "text");
  if (points.some((point) => point[3] <= full)) {
    pen.line(line(3), "accent-edge", { width: 2, dashes: [2, 3] });
  } else if (limit) pen.text(`limit: ${inBytes(limit)}, above`, right, top + 6, quiet);
}

export default widgetOf(start, take, build);
