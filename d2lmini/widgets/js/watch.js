// The engine at work, live: what `d2lmini.watch()` shows. Reads what watch_messages.py says; knows
// nothing of a kernel, so that a page could replay messages that were kept.
//
// From top to bottom: `Known`, what was told; `Window`, which part of it is seen; the drawing of
// lanes, arrows and charts; the words about what was clicked; the view with its buttons.

const ROW = 24; // dots: height of a lane, of its bars, of a chart, of what stands below
const BAR = 18;
const CHART = 46;
const AXIS = 34;
const GAP = 12;
const FOLLOWED_US = 2e6; // what is seen while it follows
const MOST_ARROWS = 40; // of more bars nobody could follow the arrows

// -- what was told ---------------------------------------------------------------------------------

// Lanes, each { name, kind, bars }; a bar is an operation or a wait: { lane, name, begin, end, ... }.
class Known {
  constructor() {
    this.forget();
  }

  forget() {
    this.rows = new Map(); // index, or thread -> lane
    this.operations = new Map(); // number -> bar
    this.times = []; // of the samples
    this.queued = [];
    this.devices = []; // { name, live, cached, pending }
    this.state = { now: 0, count: 0, queued: 0, live: false, rows: [], running: [], waiting: [] };
  }

  take(header) {
    if (header.whole) this.forget();
    this.state = header;
    for (const [index, name] of header.rows) {
      const kind = / (in|out)$/.test(name) ? "copy" : "compute";
      Object.assign(this.lane(index), { name, kind });
    }
    for (const told of header.operations) this.takeOperation(told);
    for (const told of header.waits) this.takeWait(told);
    for (const told of header.samples) this.takeSample(told);
    this.drop(header.kept);
  }

  lane(key) {
    if (!this.rows.has(key)) this.rows.set(key, { name: "", kind: "compute", bars: [] });
    return this.rows.get(key);
  }

  // The lane of a thread of the program.
  front(thread) {
    const name = thread === "MainThread" ? "front end" : `front end, ${thread}`;
    return Object.assign(this.lane(`front ${thread}`), { name, kind: "wait" });
  }

  takeOperation([number, name, row, pushed, ready, begin, end, where, failure, needs, room]) {
    const lane = row < 0 ? null : this.lane(row);
    const bar = { lane, number, name, pushed, ready, begin, end, where, failure, needs, room };
    this.operations.set(number, bar);
    if (lane) insert(lane.bars, bar);
  }

  takeWait([thread, kind, begin, end, where, operation]) {
    const lane = this.front(thread);
    const bar = { lane, name: kind, begin, end, where, operation };
    insert(lane.bars, bar);
  }

  takeSample([time, queued, ...held]) {
    for (let k = this.devices.length; k < held.length / 3; k++) {
      const none = () => new Array(this.times.length).fill(0);
      this.devices.push({ live: none(), cached: none(), pending: none() });
    }
    this.times.push(time);
    this.queued.push(queued);
    this.devices.forEach(({ live, cached, pending }, k) => {
      [live, cached, pending].forEach((each, i) => each.push(held[3 * k + i] ?? 0));
    });
  }

  // Forget what is older than the last `kept`; not each time, for it costs.
  drop(kept) {
    if (this.operations.size > 1.2 * kept) {
      const numbers = [...this.operations.keys()].sort((a, b) => a - b);
      for (const number of numbers.slice(0, numbers.length - kept)) this.operations.delete(number);
      for (const lane of this.rows.values()) {
        if (lane.kind !== "wait") lane.bars = lane.bars.filter((bar) => this.operations.has(bar.number));
      }
    }
    const waits = [...this.rows.values()].filter((lane) => lane.kind === "wait").map((lane) => lane.bars);
    const series = this.devices.flatMap((each) => [each.live, each.cached, each.pending]);
    for (const each of [...waits, this.times, this.queued, ...series]) {
      if (each.length > 1.2 * kept) each.splice(0, each.length - kept);
    }
  }

  // All lanes as they stand, those of the program first, each with what is going on now.
  lanes() {
    const { now, running, waiting, rows } = this.state;
    const going = [
      ...waiting.map(([thread, kind, begin, , where]) => ({
        lane: this.front(thread), name: kind, begin, where,
      })),
      ...running.map(([number, name, row, begin, where]) => ({
        lane: this.lane(row), number, name, begin, where, needs: [], room: [],
      })),
    ].map((bar) => ({ ...bar, end: now, open: true }));
    const fronts = [...this.rows.values()].filter((lane) => lane.kind === "wait");
    const lanes = [...fronts, ...rows.map(([index]) => this.lane(index))];
    for (const lane of lanes) lane.going = going.filter((bar) => bar.lane === lane);
    return lanes;
  }

  // From the first to the last that is known, in microseconds.
  span() {
    const ends = this.lanes().flatMap(({ bars, going }) => [...bars.slice(0, 1), ...bars.slice(-1), ...going]);
    const begin = Math.min(...ends.map((bar) => bar.begin));
    const end = Math.max(...ends.map((bar) => bar.end));
    return begin < end ? [begin, end] : [0, Math.max(this.state.now, 1)];
  }

  // The operations of these numbers that are known.
  those(numbers) {
    return numbers.map((number) => this.operations.get(number)).filter((bar) => bar);
  }

  // The last of those that `bar` came after, if it was not over when `bar` was issued.
  waitedFor(bar) {
    const late = this.those([...bar.needs, ...bar.room]).filter((other) => other.end > bar.pushed);
    return late.sort((a, b) => b.end - a.end)[0];
  }

  neededBy(bar) {
    return [...this.operations.values()].filter((other) => other.needs.includes(bar.number));
  }
}

// Put a bar among others, in the order of their begins; nearly always at the end.
function insert(bars, bar) {
  let at = bars.length;
  while (at && bars[at - 1].begin > bar.begin) at--;
  bars.splice(at, 0, bar);
}

// How many of the sorted values that `of` gives lie before `time`.
function before(values, time, of = (value) => value) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(values[middle]) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// -- which part is seen ----------------------------------------------------------------------------

class Window {
  constructor(known) {
    this.known = known;
    this.mode = "follow"; // "follow" the last moments, "all", or "free"
    this.width = FOLLOWED_US;
    this.begin = 0;
    this.paused = false;
    this.selected = null;
  }

  // What is seen now: [begin, end] in microseconds.
  seen() {
    if (!this.paused) {
      const [first, last] = this.known.span();
      if (this.mode === "all") [this.begin, this.width] = [first, Math.max(last - first, 1) * 1.01];
      if (this.mode === "follow") this.begin = Math.max(first, last - this.width);
    }
    return [this.begin, this.begin + this.width];
  }

  zoom(factor, share = 0.5) {
    const [begin, end] = this.seen();
    if (this.mode === "follow" && !this.paused) share = 1;
    else this.mode = "free";
    this.width = Math.min(Math.max((end - begin) * factor, 5), 3.6e9);
    this.begin = begin + (end - begin - this.width) * share;
  }

  pan(share) {
    this.begin = this.seen()[0] + share * this.width;
    this.mode = "free";
  }

  choose(bar) {
    this.selected = bar;
    if (!bar) return;
    const [begin, end] = this.seen();
    if (bar.end >= begin && bar.begin <= end) return;
    this.mode = "free";
    this.begin = (bar.begin + bar.end - this.width) / 2;
  }
}

// -- drawing ---------------------------------------------------------------------------------------

// Where everything stands on a canvas of this width, and how times become dots.
function layoutOf(known, width, [begin, end]) {
  const lanes = known.lanes();
  const [left, right] = [width < 500 ? 92 : 132, width - 12];
  const queue = ROW * Math.max(1, lanes.length) + GAP;
  const axis = queue + (1 + known.devices.length) * (CHART + GAP);
  const perUs = (right - left) / (end - begin);
  const x = (time) => left + (time - begin) * perUs;
  const time = (dot) => begin + (dot - left) / perUs;
  return { lanes, left, right, queue, axis, height: axis + AXIS, begin, end, perUs, x, time };
}

// Draw all of it; gives the bars that are to be seen one by one.
function draw(pen, layout, known, chosen) {
  const { context } = pen;
  const { lanes, left, right } = layout;
  const seen = [];
  drawAxis(pen, layout);
  lanes.forEach(({ name }, n) => {
    const short = left < 100 ? name.replace("worker ", "w").replace("front end", "front") : name;
    pen.text(short, left - 8, n * ROW + ROW / 2, { align: "right" });
    pen.line([[left, n * ROW + ROW - 0.5], [right, n * ROW + ROW - 0.5]], "line");
  });
  if (!lanes.length) pen.text("no operation yet", left + 8, ROW / 2, { colour: "quiet" });
  context.save();
  context.beginPath();
  context.rect(left, 0, right - left, layout.height);
  context.clip();
  lanes.forEach((lane, n) => drawLane(pen, layout, lane, n, seen));
  const arrows = seen.filter((bar) => bar.needs && !bar.open && bar !== chosen);
  for (const bar of seen.length <= MOST_ARROWS ? arrows : []) arrow(pen, layout, known.waitedFor(bar), bar, 0.6);
  if (chosen) drawChosen(pen, layout, known, chosen);
  context.restore();
  drawCharts(pen, layout, known);
  return seen;
}

function drawLane(pen, layout, lane, n, seen) {
  const { context } = pen;
  const { left, right, x } = layout;
  const top = n * ROW + (ROW - BAR) / 2;
  const covered = new Float32Array(Math.max(1, right - left + 1));
  const last = before(lane.bars, layout.end, (bar) => bar.begin);
  for (let i = before(lane.bars, layout.begin, (bar) => bar.end); i < last; i++) {
    const bar = lane.bars[i];
    const [from, to] = [x(bar.begin) - left, x(bar.end) - left];
    if (to - from >= 2) {
      drawBar(pen, layout, bar, top);
      seen.push(bar);
    } else {
      for (let dot = Math.max(0, Math.floor(from)); dot <= to && dot < covered.length; dot++) {
        covered[dot] += Math.max(0, Math.min(to, dot + 1) - Math.max(from, dot));
      }
    }
  }
  // Those narrower than two dots are drawn together, as high as they fill their column; in the
  // colour of the edges, for they would be all that is seen of so narrow a bar.
  context.fillStyle = pen.colour(`${lane.kind}-edge`);
  covered.forEach((share, dot) => {
    const height = share && Math.max(2, BAR * Math.min(1, share));
    if (height) context.fillRect(left + dot, top + BAR - height, 1, height);
  });
  for (const bar of lane.going) {
    drawBar(pen, layout, bar, top);
    seen.push(bar);
  }
}

function drawBar(pen, layout, bar, top) {
  const { context } = pen;
  const kind = bar.failure ? "failed" : bar.lane.kind;
  const from = Math.max(layout.x(bar.begin), layout.left - 4);
  const to = Math.min(layout.x(bar.end), layout.right + 4);
  context.fillStyle = pen.colour(kind);
  context.fillRect(from, top, Math.max(1, to - from), BAR);
  context.strokeStyle = pen.colour(`${kind}-edge`);
  context.lineWidth = 1;
  context.setLineDash(bar.open ? [3, 2] : []); // one that goes on is open at its end
  context.strokeRect(from + 0.5, top + 0.5, Math.max(0.5, to - from - 1), BAR - 1);
  context.setLineDash([]);
  const full = bar.needs ? `${bar.number} ${bar.name}${bar.failure ? " ✗" : ""}` : placeOf(bar.where);
  const middle = (Math.max(from, layout.left) + Math.min(to, layout.right)) / 2;
  const how = { align: "center", room: to - from - 6 };
  const written = pen.text(full, middle, top + BAR / 2 + 0.5, how);
  if (!written) pen.text(bar.number ?? bar.name, middle, top + BAR / 2 + 0.5, how);
}

// "train.py:12: y = x" -> "train.py:12", "In [3], line 2: ..." -> "In [3], line 2".
function placeOf(where) {
  return where.split(": ")[0].split("/").pop();
}

// From the end of one bar to the begin of another; to the end of a wait.
function arrow(pen, layout, from, to, strength = 1, dashes = []) {
  const [n, m] = [from, to].map((bar) => layout.lanes.indexOf(bar?.lane));
  if (n < 0 || m < 0) return;
  const { context } = pen;
  const [x, y] = [layout.x(from.end), n * ROW + ROW / 2];
  const [x2, y2] = [layout.x(to.needs ? to.begin : to.end), m * ROW + ROW / 2];
  const high = n === m ? y - BAR - 8 : (y + y2) / 2; // around the words in the bar
  const angle = Math.atan2(y2 - high, (x2 - x) / 2);
  context.save();
  context.globalAlpha = strength;
  context.strokeStyle = context.fillStyle = pen.colour("accent-edge");
  context.lineWidth = strength === 1 ? 1.6 : 1;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(x, y);
  context.quadraticCurveTo((x + x2) / 2, high, x2, y2);
  context.stroke();
  context.beginPath();
  context.moveTo(x2, y2);
  for (const turn of [-0.4, 0.4]) {
    context.lineTo(x2 - 7 * Math.cos(angle + turn), y2 - 7 * Math.sin(angle + turn));
  }
  context.fill();
  context.restore();
}

// The one that was clicked: a thick frame, how it waited, and arrows from all that it came after
// and to those that need it.
function drawChosen(pen, layout, known, chosen) {
  const n = layout.lanes.indexOf(chosen.lane);
  if (n < 0) return;
  const top = n * ROW + (ROW - BAR) / 2;
  const [x, x2] = [layout.x(chosen.begin), layout.x(chosen.end)];
  const corners = [[x - 1, top - 1], [x2 + 1, top - 1], [x2 + 1, top + BAR + 1], [x - 1, top + BAR + 1]];
  pen.line([...corners, corners[0]], "accent-edge", { width: 2.5 });
  if (!chosen.needs) {
    arrow(pen, layout, known.operations.get(chosen.operation), chosen);
    return;
  }
  // From its push to its begin: dashed while what it needs is pending, solid while it waits for a
  // worker.
  const [y, ready] = [top + BAR + 2, layout.x(chosen.ready)];
  pen.line([[layout.x(chosen.pushed), y], [ready, y]], "accent-edge", { width: 2, dashes: [3, 3] });
  pen.line([[ready, y], [x, y]], "accent-edge", { width: 2 });
  for (const other of known.those(chosen.needs)) arrow(pen, layout, other, chosen);
  for (const other of known.those(chosen.room)) arrow(pen, layout, other, chosen, 1, [4, 3]);
  for (const other of known.neededBy(chosen).slice(0, 24)) arrow(pen, layout, chosen, other, 0.7);
}

// -- charts and the axis of time -------------------------------------------------------------------

const LINES = { // colour and dashes
  live: ["compute-edge", []], cached: ["compute-edge", [6, 3]], pending: ["accent-edge", [1.5, 2.5]],
};

function drawCharts(pen, layout, known) {
  drawChart(pen, layout, known, 0, "queued", String, [[known.queued, "compute-edge", { fill: "compute" }]]);
  known.devices.forEach((device, k) => {
    const lines = Object.entries(LINES).map(([kind, [colour, dashes]]) =>
      [device[kind], colour, { width: 1.4, dashes }]);
    drawChart(pen, layout, known, k + 1, `memory ${known.state.devices[k]}`, inBytes, lines);
  });
}

// Lines over time, all on one scale from 0 to the most that is seen; with `fill` down to 0.
function drawChart(pen, layout, known, row, name, words, lines) {
  const { left, right, x } = layout;
  const { times, state } = known;
  const top = layout.queue + row * (CHART + GAP);
  const bottom = top + CHART;
  // The last before what is seen, to the first behind it.
  const from = Math.max(0, before(times, layout.begin) - 1);
  const to = Math.min(times.length, before(times, layout.end) + 1);
  const most = lines.reduce((high, [values]) => Math.max(high, ...values.slice(from, to)), 0);
  const side = { align: "right", colour: "quiet", size: 10 };
  pen.text(name, left - 8, top + CHART / 2, { align: "right", room: left - 10 });
  pen.line([[left, bottom + 0.5], [right, bottom + 0.5]], "line");
  pen.text("0", left - 8, bottom - 3, side);
  if (!most) return;
  pen.text(words(most), left - 8, top + 3, side);
  pen.context.save();
  pen.context.beginPath();
  pen.context.rect(left, top - 2, right - left, CHART + 4);
  pen.context.clip();
  for (const [values, colour, how] of lines) {
    const highest = new Map(); // dot -> the most that was held there: many samples share a dot
    for (let i = from; i < to; i++) {
      const dot = Math.round(x(times[i]));
      highest.set(dot, Math.max(values[i], highest.get(dot) ?? 0));
    }
    // What was held stays so until the next sample.
    const places = [...highest].flatMap(([dot, value], i, all) => {
      const y = bottom - ((CHART - 4) * value) / most;
      return [[dot, y], [all[i + 1]?.[0] ?? Math.max(dot, x(state.now)), y]];
    });
    pen.line(places, colour, { ...how, down: how.fill ? bottom : null });
  }
  pen.context.restore();
}

function drawAxis(pen, layout) {
  const { left, right, axis, begin, end, x } = layout;
  const span = end - begin;
  const [unit, us] = span > 5e6 ? ["s", 1e6] : span > 5e3 ? ["ms", 1e3] : ["us", 1];
  pen.line([[left, axis + 0.5], [right, axis + 0.5]], "quiet");
  for (const [time, word] of ticks(begin / us, end / us, Math.max(2, (right - left) / 90))) {
    pen.line([[x(time * us), 0], [x(time * us), axis + 4]], "line");
    if (x(time * us) < right - 8) {
      pen.text(word, x(time * us), axis + 11, { align: "center", colour: "quiet", size: 10 });
    }
  }
  const words = `${unit} since watch() began`;
  pen.text(words, (left + right) / 2, axis + 25, { align: "center", colour: "quiet" });
}

// -- words about what was clicked ------------------------------------------------------------------

function wordsOf(known, bar) {
  const name = (number) => {
    const other = known.operations.get(number);
    return other ? `${number} ${other.name}` : `${number} (forgotten)`;
  };
  const names = (numbers) => numbers.map(name).join(", ");
  const us = (time) => inTime(time / 1e6);
  const took = `${us(bar.end - bar.begin)}${bar.open ? " so far" : ""}`;
  const line = ["line", bar.where];
  if (!bar.needs) {
    return [["wait", `${bar.name}, ${took}`], ...(bar.operation ? [["for", name(bar.operation)]] : []), line];
  }
  const lines = [["operation", `${bar.number} ${bar.name}, ran ${took}`], line];
  if (bar.open) return lines;
  const last = known.waitedFor(bar);
  const pending = `${us(bar.ready - bar.pushed)} for what it needs`;
  const worker = `${us(bar.begin - bar.ready)} for a worker`;
  lines.push(["waited", `${pending}${last ? `, at last for ${name(last.number)}` : ""}; ${worker}`]);
  lines.push(["issued at", us(bar.pushed)]);
  if (bar.needs.length) lines.push(["needs", names(bar.needs)]);
  if (bar.room.length) lines.push(["makes room for", names(bar.room)]);
  const users = known.neededBy(bar).slice(0, 8).map((other) => other.number);
  if (users.length) lines.push(["needed by", names(users)]);
  if (bar.failure) lines.push(["failed", bar.failure]);
  return lines;
}

// -- a view ----------------------------------------------------------------------------------------

const HELP =
  "Timeline of the engine. Left and right arrow: move, or, once an operation is chosen, the " +
  "previous and next; Enter: choose; plus and minus: zoom; Home: all; End: follow; space: pause; " +
  "Escape: choose nothing.";

const INVITATION =
  "Click an operation or a wait to see what it was and what it waited for. " +
  "Drag to move; once clicked, the wheel zooms.";

function start() {
  const known = new Known();
  return { known, part: new Window(known) };
}

function take({ known, part }, header) {
  const was = known.state.live;
  known.take(header);
  // When it is over all of it is shown, unless somebody is looking at a part.
  if (!header.live && (was ? part.mode === "follow" : part.mode !== "free")) part.mode = "all";
}

function build({ known, part }, model, el, all) {
  el.classList.add("d2l-watch");
  let seen = [];
  let layout = null;
  const picture = drawing(120, el, (pen) => {
    layout = layoutOf(known, pen.width, part.seen());
    picture.resize(layout.height);
    seen = draw(pen, layout, known, part.selected);
  });
  const { canvas } = picture;
  canvas.setAttribute("aria-label", HELP);
  canvas.setAttribute("role", "application");
  const words = element("dl", { class: "d2l-terms d2l-watch-words", "aria-live": "polite" });
  const status = element("span", { class: "d2l-quiet d2l-watch-status" });

  const press = (word, title, change) => button(word, title, () => {
    change();
    all();
  });
  const show = (mode) => Object.assign(part, { mode, paused: false });
  const pause = press("Pause", "Stop the picture; the recording goes on (space)", () => {
    part.paused = !part.paused;
  });
  const follow = press("Follow", "Show the last moments, as they come (End)", () => {
    show("follow");
    part.width = Math.min(part.width, FOLLOWED_US);
  });
  const whole = press("All", "Show everything that is remembered (Home)", () => show("all"));
  const bar = element(
    "div", { class: "d2l-bar" }, pause, follow, whole,
    press("−", "Zoom out (minus)", () => part.zoom(1.6)),
    press("+", "Zoom in (plus)", () => part.zoom(1 / 1.6)),
    element("span", { class: "d2l-space" }), status,
  );
  const legend = element(
    "div", { class: "d2l-legend" },
    ...["compute", "copy", "wait", "failed"].map((kind) => legendEntry(kind, kind)),
    legendEntry(lineMark("accent-edge"), "waited for"),
    ...Object.entries(LINES).map(([kind, line]) => legendEntry(lineMark(...line), kind)),
  );

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  // The bar at a place of the canvas, or next to it.
  const barAt = (x, y) => {
    const lane = layout?.lanes[Math.floor(y / ROW)];
    if (!lane || x < layout.left) return null;
    const [time, slack] = [layout.time(x), 3 / layout.perUs];
    const first = before(lane.bars, time - slack, (bar) => bar.end);
    const away = (bar) => Math.max(bar.begin - time, time - bar.end, 0);
    const near = [...lane.bars.slice(first, first + 8), ...lane.going].filter((bar) => away(bar) <= slack);
    return near.sort((a, b) => away(a) - away(b))[0] ?? null;
  };

  let drag = null;
  const on = (type, listener) => canvas.addEventListener(type, listener, { passive: false });
  on("pointerdown", (event) => {
    drag = { x: at(event)[0], moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  on("pointermove", (event) => {
    const [x, y] = at(event);
    if (!drag) canvas.style.cursor = barAt(x, y) ? "pointer" : "grab";
    else if (drag.moved || Math.abs(x - drag.x) > 4) {
      part.pan((drag.x - x) / (layout.right - layout.left));
      drag = { x, moved: true };
      all();
    }
  });
  on("pointerup", (event) => {
    if (drag && !drag.moved) part.choose(barAt(...at(event)));
    drag = null;
    all();
  });
  on("pointercancel", () => (drag = null));
  on("wheel", (event) => {
    // The page scrolls over it, until it was clicked.
    if (document.activeElement !== canvas && !event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) part.pan(event.deltaX / 800);
    else {
      const share = (at(event)[0] - layout.left) / (layout.right - layout.left);
      part.zoom(1.0015 ** event.deltaY, Math.min(1, Math.max(0, share)));
    }
    all();
  });

  // The next operation of the lane, or, if none is chosen, another part.
  const move = (by) => {
    const bars = part.selected?.lane.bars;
    if (!bars) part.pan(0.2 * by);
    else part.choose(bars[bars.indexOf(part.selected) + by] ?? part.selected);
  };
  // The operation in the middle.
  const enter = () => {
    const time = (layout.begin + layout.end) / 2;
    const away = (each) => Math.abs(each.begin - time);
    const near = seen.filter((each) => each.needs && !each.open).sort((a, b) => away(a) - away(b));
    part.choose(near[0] ?? [...known.operations.values()].filter((each) => each.lane).pop() ?? null);
  };
  on("keydown", (event) => {
    const keys = {
      ArrowLeft: () => move(-1), ArrowRight: () => move(1), Enter: enter,
      Escape: () => part.choose(null), "+": () => part.zoom(1 / 1.6), "=": () => part.zoom(1 / 1.6),
      "-": () => part.zoom(1.6), " ": () => pause.click(), Home: () => whole.click(),
      End: () => follow.click(),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
    all();
  });

  const update = (header) => {
    if (header && part.paused) return; // the recording goes on, the picture stands
    const { state } = known;
    picture.again();
    pause.textContent = part.paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", part.paused);
    follow.setAttribute("aria-pressed", part.mode === "follow");
    whole.setAttribute("aria-pressed", part.mode === "all");
    const going = state.waiting.map((each) => ` · waiting at ${placeOf(each[4])}`);
    status.textContent =
      `${state.live ? "live" : "over"} · ${state.count} operations, ${state.queued} queued` +
      going.join("");
    canvas.dataset.events = known.operations.size;
    const lines = part.selected ? wordsOf(known, part.selected) : [];
    const told = JSON.stringify(lines);
    if (words.dataset.told === told) return;
    words.dataset.told = told;
    words.replaceChildren(...termList(lines));
    if (!lines.length) words.append(element("dd", { class: "d2l-quiet" }, INVITATION));
  };
  el.replaceChildren(bar, canvas, legend, words);
  update();
  return { update, end: picture.end };
}

export default widgetOf(start, take, build);
