// The memory dial (widgets/dial.py): a slider, Run, Cancel, a curve, and the runs. The kernel
// tells everything (header.whole), or how the run stands (header.state) and its curve. From here go
// { kind, at }: "run", "cancel", "turn", and the position of the slider.

function start() {
  return { told: null, at: 0, images: [], curve: [] };
}

function take(dial, header, buffers) {
  if (header.curve) dial.curve = header.curve; // (seconds, pending, in arrays, limit) as rows
  if (header.whole) {
    dial.at = header.at;
    dial.told = header;
    // The old pictures are shown until the new ones are there.
    setTimeout((old) => old.forEach((url) => URL.revokeObjectURL(url)), 5000, dial.images);
    const blobs = buffers.map((each) => new Blob([each], { type: "image/png" }));
    dial.images = blobs.map((each) => URL.createObjectURL(each));
  } else if (dial.told) dial.told.state = header.state;
}

function build(dial, model, el) {
  el.classList.add("d2l-dial", "d2l-framed");
  const say = (kind) => () => model.send({ kind, at: dial.at });
  const title = element("b");
  const shown = element("output", { class: "d2l-mono", "aria-live": "off" });
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "limit",
    oninput: () => {
      dial.at = Number(slider.value);
      showLimit();
    },
    onchange: say("turn") });
  // So that the arrows move the slider and not the notebook, whose keys JupyterLab takes first.
  slider.dataset.lmSuppressShortcuts = "true";
  const run = button("Run", "Run with this limit, in the background", say("run"));
  const cancel = button(
    "Cancel", "End the run at its next wait; twice: drop what is queued", say("cancel"),
  );
  const text = element("span", { class: "d2l-quiet", role: "status" });
  const problem = element("pre", { role: "alert" });
  const images = element("div");
  const table = element("div", { class: "d2l-dial-table" });
  const curve = drawing(170, el, (pen) => plot(pen, dial.curve));
  curve.canvas.setAttribute("aria-label", "pending bytes and bytes of arrays over time");
  const legend = element("div", { class: "d2l-legend" },
    legendEntry("accent", "pending: pushed and not computed yet"),
    legendEntry(lineMark("text"), "in arrays"),
    legendEntry(lineMark("accent-edge", [2, 3]), "limit on pending"));
  el.append(title, element("label", {}, element("span", {}, "limit"), slider, shown),
    element("div", { class: "d2l-bar" }, run, cancel, text), curve.canvas, legend, problem,
    images, table);

  function showLimit() {
    shown.textContent = `${dial.told.places[dial.at]} MB pending at most`;
  }

  function update(header) {
    const { told } = dial;
    if (!told) return;
    const { state } = told;
    enable(run, !state.running);
    enable(cancel, state.running);
    text.textContent = state.text;
    problem.textContent = state.problem;
    problem.hidden = !state.problem;
    Object.assign(el.dataset, { runs: told.rows.length, state: state.running ? "running" : "idle" });
    curve.canvas.dataset.events = dial.curve.length;
    curve.again();
    if (!header.whole) return;
    title.textContent = told.name;
    slider.max = told.places.length - 1;
    slider.value = dial.at;
    showLimit();
    const alt = `runs of ${told.name}`;
    images.replaceChildren(...dial.images.map((src) => element("img", { src, alt })));
    table.replaceChildren(...(told.rows.length ? [tableOf(told)] : []));
    table.scrollTop = table.scrollHeight;
  }

  update({ whole: true });
  return { update, end: () => curve.end() };
}

function tableOf({ head, rows }) {
  const row = (tag, words) => element("tr", {}, ...words.map((word) => element(tag, {}, word)));
  return element("table", {}, element("thead", {}, row("th", head)),
    element("tbody", {}, ...rows.map((words) => row("td", words))));
}

// The curve.
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
