// A panel of controls (widgets/panel.py): what can be turned, Run, Cancel, Clear, and the runs.
// The kernel tells everything (header.whole) or how the run stands (header.state); from here go
// { kind: "run", values }, { kind: "cancel" } and { kind: "clear" }. Values of a choice are indices.

export default () => {
  const panel = { told: null, values: {}, images: [] };
  const views = new Set();

  function take(header, buffers) {
    if (header.whole) {
      panel.told = header;
      for (const { name, value } of header.controls) panel.values[name] ??= value;
      panel.images.forEach((url) => URL.revokeObjectURL(url));
      panel.images = buffers.map((each) => URL.createObjectURL(new Blob([each], { type: "image/png" })));
    } else if (panel.told && header.state) {
      panel.told.state = header.state;
    }
    views.forEach((view) => view(header.whole));
  }

  return {
    initialize({ model }) {
      listen(model, take);
    },
    render({ model, el }) {
      el.classList.add("d2l-widget", "d2l-panel");
      // So that the notebook's own keys (arrows, letters) do not strike while a slider is moved.
      el.dataset.lmSuppressShortcuts = "true";
      const parts = build(model, panel);
      el.append(...parts.elements);
      const view = (whole) => parts.update(panel, whole);
      views.add(view);
      if (panel.told) view(true);
      return () => views.delete(view);
    },
  };
};

function build(model, panel) {
  const title = element("div", { class: "d2l-panel-title" });
  const controls = element("div", { class: "d2l-panel-controls" });
  const run = button("Run", "Run with these values, in the background", () =>
    model.send({ kind: "run", values: panel.values }),
  );
  run.classList.add("d2l-panel-run");
  const cancel = button("Cancel", "End the run at its next wait; twice: drop what is queued", () =>
    model.send({ kind: "cancel" }),
  );
  const clear = button("Clear", "Forget the runs so far", () => model.send({ kind: "clear" }));
  const bar = element("progress", { class: "d2l-panel-progress", max: 1, value: 0 });
  bar.setAttribute("aria-label", "progress of the run");
  const text = element("span", { class: "d2l-panel-state d2l-quiet", role: "status" });
  const problem = element("pre", { class: "d2l-panel-problem d2l-mono", role: "alert" });
  const printed = element("pre", { class: "d2l-panel-printed d2l-mono" });
  const images = element("div", { class: "d2l-panel-images" });
  const table = element("div", { class: "d2l-panel-table" });
  const buttons = element("div", { class: "d2l-bar" }, run, cancel, clear, bar, text);
  let made = "";

  function update({ told, values, images: urls }, whole) {
    const { state } = told;
    run.disabled = state.running;
    cancel.disabled = !state.running;
    clear.disabled = state.running || !told.rows.length;
    text.textContent = state.text;
    bar.hidden = !state.running;
    if (state.total) [bar.max, bar.value] = [state.total, Math.min(state.done, state.total)];
    else bar.removeAttribute("value"); // it moves to and fro: nobody knows how far it is
    problem.textContent = state.problem;
    problem.hidden = !state.problem;
    if (!whole) return;
    title.textContent = told.name;
    if (made !== JSON.stringify(told.controls)) {
      made = JSON.stringify(told.controls);
      controls.replaceChildren(...told.controls.map((each) => control(each, values)));
    }
    printed.textContent = told.printed;
    printed.hidden = !told.printed;
    images.replaceChildren(
      ...urls.map((src) => element("img", { src, alt: `the runs of ${told.name}, as in the table` })),
    );
    table.replaceChildren(...(told.rows.length ? [runs(told)] : []));
    table.scrollTop = table.scrollHeight;
  }

  return { elements: [title, controls, buttons, problem, printed, images, table], update };
}

// A labelled row: the control itself and what it stands at.
function control(each, values) {
  const shown = element("output", { class: "d2l-mono" });
  const label = element("label", {}, element("span", {}, each.name));
  const show = () => {
    const at = values[each.name];
    shown.textContent = each.choices ? each.choices[at] : brief(at);
  };
  const set = (value) => {
    values[each.name] = value;
    show();
  };
  if (each.kind === "switch") {
    const box = element("input", { type: "checkbox" });
    box.checked = values[each.name];
    box.addEventListener("change", () => set(box.checked));
    label.append(box, shown);
  } else if (each.kind === "choice" && !each.rising) {
    const names = each.choices.map((word, at) => element("option", { value: at }, word));
    const select = element("select", { class: "d2l-button" }, ...names);
    select.value = values[each.name];
    select.addEventListener("change", () => set(Number(select.value)));
    label.append(select);
  } else {
    // A slider counts its steps, so that 0.1 + 0.2 is not met.
    const [low, step] = each.choices ? [0, 1] : [each.low, each.step];
    const most = each.choices ? each.choices.length - 1 : Math.floor((each.high - low) / step + 1e-9);
    const slider = element("input", { type: "range", min: 0, max: most, step: 1 });
    slider.value = Math.round((values[each.name] - low) / step);
    slider.addEventListener("input", () => set(low + step * Number(slider.value)));
    label.append(slider, shown);
  }
  show();
  return label;
}

function brief(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
}

function runs({ head, rows }) {
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
