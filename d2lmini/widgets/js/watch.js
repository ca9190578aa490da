// The engine at work, live: what `d2lmini.watch()` shows. Reads what watch_messages.py says; knows
// nothing of a kernel, so that a page could replay messages that were kept.
//
// From top to bottom: `Known`, what was told; `Window`, which part of it is seen; the drawing of
// lanes, arrows and charts; the words about what was clicked; the view with its buttons.

const OPERATION = 10; // numbers for each
const WAIT = 6;
const SAMPLE = 3;
const ROW = 24; // dots: height of a lane, of its bars, of a chart, of what stands below
const BAR = 18;
const CHART = 46;
const AXIS = 34;
const GAP = 12;
const FOLLOWED_US = 2e6; // what is seen while it follows
const NONE = [];
const MOST_ARROWS = 40; // of more bars nobody could follow the arrows

// -- what was told ---------------------------------------------------------------------------------

class Known {
  constructor() {
    this.forget();
  }

  forget() {
    this.texts = [];
    this.rows = new Map(); // index -> { name, bars }
    this.order = []; // indices of rows as they stand
    this.operations = new Map(); // number -> bar
    this.fronts = new Map(); // thread -> { name, bars }
    this.times = []; // of the samples
    this.queued = [];
    this.process = []; // [time, bytes]
    this.devices = []; // { name, live, cached, pending }
    this.state = { now: 0, count: 0, queued: 0, live: false, running: [], waiting: [] };
  }

  take(header, buffers) {
    if (header.whole) this.forget();
    this.texts.length = header.known;
    this.texts.push(...header.texts);
    this.state = header;
    this.order = header.rows.map(([index, name]) => {
      this.row(index).name = name;
      return index;
    });
    this.takeOperations(numbers(buffers[0]), numbers(buffers[1], Int32Array));
    this.takeWaits(numbers(buffers[2]));
    this.takeSamples(header.devices, numbers(buffers[3]));
    this.drop(header.kept);
  }

  row(index) {
    if (!this.rows.has(index)) this.rows.set(index, { name: "", bars: [] });
    return this.rows.get(index);
  }

  text(number) {
    return number < 0 ? "" : (this.texts[number] ?? "");
  }

  takeOperations(told, after) {
    let at = 0;
    for (let i = 0; i < told.length; i += OPERATION) {
      // By index: taking rows apart would take ten times as long, and there may be 20,000.
      const needs = at + 2 + after[at];
      const room = needs + after[at + 1];
      const bar = {
        number: told[i], name: this.text(told[i + 1]), row: told[i + 2], pushed: told[i + 3],
        ready: told[i + 4], begin: told[i + 5], end: told[i + 6], where: this.text(told[i + 7]),
        about: this.text(told[i + 8]), failure: this.text(told[i + 9]), wait: false,
        needs: needs > at + 2 ? Array.from(after.subarray(at + 2, needs)) : NONE,
        room: room > needs ? Array.from(after.subarray(needs, room)) : NONE,
      };
      at = room;
      this.operations.set(bar.number, bar);
      if (bar.row >= 0) insert(this.row(bar.row).bars, bar);
    }
  }

  takeWaits(told) {
    for (let i = 0; i < told.length; i += WAIT) {
      const [thread, kind, begin, end, where, operation] = told.subarray(i, i + WAIT);
      const bar = {
        wait: true, name: this.text(kind), begin, end, where: this.text(where), operation,
      };
      insert(this.front(this.text(thread)).bars, bar);
    }
  }

  front(thread) {
    if (!this.fronts.has(thread)) {
      const name = thread === "MainThread" ? "front end" : `front end, ${thread}`;
      this.fronts.set(thread, { name, bars: [] });
    }
    return this.fronts.get(thread);
  }

  takeSamples(names, told) {
    const width = SAMPLE + 3 * names.length;
    for (let k = this.devices.length; k < names.length; k++) {
      const none = () => new Array(this.times.length).fill(0);
      this.devices.push({ name: names[k], live: none(), cached: none(), pending: none() });
    }
    for (let i = 0; i < told.length; i += width) {
      this.times.push(told[i]);
      this.queued.push(told[i + 1]);
      if (told[i + 2]) this.process.push([told[i], told[i + 2]]);
      this.devices.forEach((device, k) => {
        const at = i + SAMPLE + 3 * k;
        device.live.push(told[at]);
        device.cached.push(told[at + 1]);
        device.pending.push(told[at + 2]);
      });
    }
  }

  // Forget what is older than the last `kept`; not each time, for it costs.
  drop(kept) {
    if (this.operations.size > 1.2 * kept) {
      const numbers = [...this.operations.keys()].sort((a, b) => a - b);
      for (const number of numbers.slice(0, numbers.length - kept)) this.operations.delete(number);
      for (const row of this.rows.values()) {
        row.bars = row.bars.filter((bar) => this.operations.has(bar.number));
      }
    }
    for (const front of this.fronts.values()) {
      if (front.bars.length > 1.2 * kept) front.bars.splice(0, front.bars.length - kept);
    }
    if (this.times.length > 1.2 * kept) {
      const n = this.times.length - kept;
      const series = this.devices.flatMap((each) => [each.live, each.cached, each.pending]);
      for (const each of [this.times, this.queued, ...series]) each.splice(0, n);
      this.process = this.process.filter(([time]) => time >= this.times[0]);
    }
  }

  // All lanes as they stand, with what is going on now at their ends.
  lanes() {
    const { now, running, waiting } = this.state;
    for (const [thread] of waiting) this.front(this.text(thread));
    const lanes = [];
    for (const [thread, front] of this.fronts) {
      const going = waiting
        .filter((each) => this.text(each[0]) === thread)
        .map(([, kind, begin, where]) => ({
          wait: true, open: true, name: this.text(kind), begin, end: now, operation: 0,
          where: this.text(where),
        }));
      lanes.push({ name: front.name, bars: front.bars, going });
    }
    for (const index of this.order) {
      const { name, bars } = this.rows.get(index);
      const going = running
        .filter((each) => each[2] === index)
        .map(([number, called, row, begin, where]) => ({
          number, name: this.text(called), row, begin, end: now, open: true, wait: false,
          where: this.text(where), needs: [], room: [],
        }));
      lanes.push({ name, bars, going, link: / (in|out)$/.test(name) });
    }
    return lanes;
  }

  // From the first to the last that is known, in microseconds.
  span() {
    let [begin, end] = [Infinity, -Infinity];
    for (const { bars, going } of this.lanes()) {
      if (bars.length) {
        begin = Math.min(begin, bars[0].begin);
        end = Math.max(end, bars[bars.length - 1].end);
      }
      for (const each of going) [begin, end] = [Math.min(begin, each.begin), this.state.now];
    }
    return begin < end ? [begin, end] : [0, Math.max(this.state.now, 1)];
  }

  // The last of those that `bar` came after, if it was not over when `bar` was issued.
  waitedFor(bar) {
    let last = null;
    for (const number of [...bar.needs, ...bar.room]) {
      const other = this.operations.get(number);
      if (other && other.end > bar.pushed && (!last || other.end > last.end)) last = other;
    }
    return last;
  }
}

// Put a bar among others, in the order of their begins; nearly always at the end.
function insert(bars, bar) {
  let at = bars.length;
  while (at && bars[at - 1].begin > bar.begin) at--;
  if (at === bars.length) bars.push(bar);
  else bars.splice(at, 0, bar);
}

// The first of `bars` that ends at `time` or later.
function firstAt(bars, time) {
  let [low, high] = [0, bars.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars[middle].end < time) low = middle + 1;
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
      if (this.mode === "all") {
        this.begin = first;
        this.width = Math.max(last - first, 1) * 1.01;
      }
      if (this.mode === "follow") this.begin = Math.max(first, last - this.width);
    }
    return [this.begin, this.begin + this.width];
  }

  zoom(factor, share = 0.5) {
    const [begin, end] = this.seen();
    if (this.mode === "follow" && !this.paused) share = 1;
    else this.mode = "free";
    const width = Math.min(Math.max((end - begin) * factor, 5), 3.6e9);
    this.begin = begin + (end - begin - width) * share;
    this.width = width;
  }

  pan(share) {
    const [begin] = this.seen();
    this.mode = "free";
    this.begin = begin + share * this.width;
  }

  show(bar) {
    const [begin, end] = this.seen();
    if (bar.end < begin || bar.begin > end) {
      this.mode = "free";
      this.begin = (bar.begin + bar.end - this.width) / 2;
    }
  }
}

// -- drawing ---------------------------------------------------------------------------------------

// Where everything stands on a canvas of this width.
function layoutOf(known, width) {
  const lanes = known.lanes();
  const left = width < 500 ? 92 : 132;
  const queue = ROW * Math.max(1, lanes.length) + GAP;
  const memory = queue + CHART + GAP;
  const charts = known.devices.length + 1; // and the whole process
  const axis = memory + charts * (CHART + GAP);
  return { lanes, left, right: width - 12, queue, memory, axis, height: axis + AXIS };
}

// A canvas as we draw on it: the context, times to dots, colours and fills of the theme.
class Pen {
  constructor(context, el, layout, [begin, end]) {
    this.context = context;
    this.layout = layout;
    [this.begin, this.end] = [begin, end];
    this.perUs = (layout.right - layout.left) / (end - begin);
    this.colour = palette(el);
    this.font = getComputedStyle(el).fontFamily;
    this.fills = new Map();
  }

  x(time) {
    return this.layout.left + (time - this.begin) * this.perUs;
  }

  fill(kind) {
    if (!this.fills.has(kind)) this.fills.set(kind, fill(this.context, kind, this.colour));
    return this.fills.get(kind);
  }

  // Text that fits into `room` dots, or nothing.
  text(words, x, y, { align = "left", colour = "text", room = Infinity, size = 11 } = {}) {
    const { context } = this;
    context.font = `${size}px ${this.font}`;
    if (context.measureText(words).width > room) return false;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.fillStyle = this.colour(colour);
    context.fillText(words, x, y);
    return true;
  }

  line(x, y, x2, y2, colour) {
    const { context } = this;
    context.strokeStyle = this.colour(colour);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x2, y2);
    context.stroke();
  }
}

function kindOf(bar, lane) {
  if (bar.wait) return "wait";
  if (bar.failure) return "failed";
  return lane.link ? "copy" : "compute";
}

// All of it. Remembers in `seen.bars` what has a bar of its own: [bar, lane's number].
function draw(pen, known, chosen) {
  const { context, layout } = pen;
  const bars = [];
  drawAxis(pen);
  layout.lanes.forEach((lane, n) => {
    const y = n * ROW + ROW / 2;
    pen.text(short(lane.name, pen), layout.left - 8, y, { align: "right" });
    pen.line(layout.left, n * ROW + ROW - 0.5, layout.right, n * ROW + ROW - 0.5, "line");
  });
  if (!layout.lanes.length) {
    pen.text("no operation yet", layout.left + 8, ROW / 2, { colour: "quiet" });
  }
  context.save();
  context.beginPath();
  context.rect(layout.left, 0, layout.right - layout.left, layout.height);
  context.clip();
  layout.lanes.forEach((lane, n) => drawLane(pen, lane, n, bars));
  if (bars.length <= MOST_ARROWS) {
    for (const [bar, n] of bars) {
      if (bar.wait || bar.open || bar === chosen) continue;
      const last = known.waitedFor(bar);
      if (last) arrow(pen, last.end, laneOf(layout, known, last), bar.begin, n, 0.6);
    }
  }
  if (chosen) drawChosen(pen, known, chosen);
  context.restore();
  drawCharts(pen, known);
  return bars;
}

function short(name, pen) {
  return pen.layout.left < 100 ? name.replace("worker ", "w").replace("front end", "front") : name;
}

function drawLane(pen, lane, n, drawn) {
  const { context, layout } = pen;
  const top = n * ROW + (ROW - BAR) / 2;
  const covered = new Float32Array(Math.max(1, layout.right - layout.left + 1));
  let kind = "compute";
  let thin = false;
  for (let i = firstAt(lane.bars, pen.begin); i < lane.bars.length; i++) {
    const bar = lane.bars[i];
    if (bar.begin > pen.end) break;
    const [x, x2] = [pen.x(bar.begin), pen.x(bar.end)];
    kind = kindOf(bar, lane);
    if (x2 - x >= 2) {
      drawBar(pen, bar, kind, top, x, x2);
      drawn.push([bar, n]);
    } else {
      thin = true;
      cover(covered, x - layout.left, x2 - layout.left);
    }
  }
  if (thin) {
    // Those narrower than two dots are drawn together, as high as they fill their column; in the
    // colour of the edges, for they would be all that is seen of so narrow a bar.
    context.fillStyle = pen.colour(`${kind}-edge`);
    covered.forEach((share, dot) => {
      if (share > 0) {
        const height = Math.max(2, BAR * Math.min(1, share));
        context.fillRect(layout.left + dot, top + BAR - height, 1, height);
      }
    });
  }
  for (const bar of lane.going) {
    drawBar(pen, bar, kindOf(bar, lane), top, pen.x(bar.begin), pen.x(bar.end));
    drawn.push([bar, n]);
  }
}

function cover(covered, from, to) {
  for (let dot = Math.max(0, Math.floor(from)); dot <= to && dot < covered.length; dot++) {
    covered[dot] += Math.max(0, Math.min(to, dot + 1) - Math.max(from, dot));
  }
}

function drawBar(pen, bar, kind, top, from, to) {
  const { context, layout } = pen;
  const x = Math.max(from, layout.left - 4);
  const width = Math.max(1, Math.min(to, layout.right + 4) - x);
  context.save();
  context.fillStyle = pen.fill(kind);
  context.fillRect(x, top, width, BAR);
  context.strokeStyle = pen.colour(`${kind}-edge`);
  context.lineWidth = 1;
  // One that goes on is open at its end.
  context.setLineDash(bar.open ? [3, 2] : []);
  context.strokeRect(x + 0.5, top + 0.5, Math.max(0.5, width - 1), BAR - 1);
  context.restore();
  const from_ = Math.max(x, layout.left);
  const room = Math.min(to, layout.right) - from_ - 6;
  if (room < 8) return;
  const middle = from_ + room / 2 + 3;
  const full = `${bar.number} ${bar.name}`;
  const words = bar.wait ? [placeOf(bar.where), bar.name] : [full, bar.number];
  for (const each of words) {
    context.font = `11px ${pen.font}`;
    const wide = context.measureText(each).width;
    if (wide > room) continue;
    if (kind !== "compute") {
      context.fillStyle = pen.colour(kind); // without the texture, to be read
      context.fillRect(middle - wide / 2 - 2, top + 3, wide + 4, BAR - 6);
    }
    pen.text(String(each), middle, top + BAR / 2 + 0.5, { align: "center" });
    break;
  }
}

// "train.py:12: y = x" -> "train.py:12", "In [3], line 2: ..." -> "In [3], line 2".
function placeOf(where) {
  return where.split(": ")[0].split("/").pop();
}

function laneOf(layout, known, bar) {
  const fronts = layout.lanes.length - known.order.length;
  return fronts + known.order.indexOf(bar.row);
}

// From the end of one bar to the begin of another.
function arrow(pen, from, n, to, m, strength = 1, dashed = false) {
  const { context } = pen;
  const [x, y] = [pen.x(from), n * ROW + ROW / 2];
  const [x2, y2] = [pen.x(to), m * ROW + ROW / 2];
  if (n < 0 || m < 0) return;
  context.save();
  context.globalAlpha = strength;
  context.strokeStyle = context.fillStyle = pen.colour("accent-edge");
  context.lineWidth = strength === 1 ? 1.6 : 1;
  context.setLineDash(dashed ? [4, 3] : []);
  context.beginPath();
  context.moveTo(x, y);
  let angle = Math.atan2(y2 - y, x2 - x);
  if (n === m) {
    // Around the words in the bar.
    const high = y - BAR / 2 - 1;
    context.quadraticCurveTo((x + x2) / 2, high - 4, x2, y2);
    angle = Math.atan2(y2 - high + 4, (x2 - x) / 2);
  } else context.lineTo(x2, y2);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x2, y2);
  for (const turn of [-0.4, 0.4]) {
    context.lineTo(x2 - 7 * Math.cos(angle + turn), y2 - 7 * Math.sin(angle + turn));
  }
  context.closePath();
  context.fill();
  context.restore();
}

// The one that was clicked: a thick frame, how it waited, and arrows from all that it came after
// and to those that need it.
function drawChosen(pen, known, chosen) {
  const { context, layout } = pen;
  const n = chosen.wait ? chosen.lane : laneOf(layout, known, chosen);
  if (n < 0) return;
  const top = n * ROW + (ROW - BAR) / 2;
  const [x, x2] = [pen.x(chosen.begin), pen.x(chosen.end)];
  context.strokeStyle = pen.colour("accent-edge");
  if (!chosen.wait) {
    // From its push to its begin: dashed while what it needs is pending, solid while it waits for
    // a worker.
    const y = top + BAR + 2;
    context.lineWidth = 2;
    context.setLineDash([3, 3]);
    pen.line(pen.x(chosen.pushed), y, pen.x(chosen.ready), y, "accent-edge");
    context.setLineDash([]);
    pen.line(pen.x(chosen.ready), y, x, y, "accent-edge");
  }
  context.lineWidth = 2.5;
  context.strokeRect(x - 1, top - 1, Math.max(3, x2 - x) + 2, BAR + 2);
  if (chosen.wait) {
    const made = known.operations.get(chosen.operation);
    if (made) arrow(pen, made.end, laneOf(layout, known, made), chosen.end, n);
    return;
  }
  const from = (numbers, dashed) => {
    for (const number of numbers) {
      const other = known.operations.get(number);
      if (other) arrow(pen, other.end, laneOf(layout, known, other), chosen.begin, n, 1, dashed);
    }
  };
  from(chosen.needs, false);
  from(chosen.room, true);
  for (const other of neededBy(known, chosen).slice(0, 24)) {
    arrow(pen, chosen.end, n, other.begin, laneOf(layout, known, other), 0.7);
  }
}

function neededBy(known, bar) {
  const found = [];
  for (const other of known.operations.values()) {
    if (other.needs.includes(bar.number)) found.push(other);
  }
  return found;
}

// -- charts and the axis of time -------------------------------------------------------------------

function drawCharts(pen, known) {
  const { layout } = pen;
  const queued = layout.left < 100 ? "queued" : "queued operations";
  drawChart(pen, layout.queue, queued, (most) => String(most), [
    { times: known.times, values: known.queued, style: "area" },
  ]);
  const narrow = (name) => (layout.left < 100 ? name.replace("memory", "mem") : name);
  const charts = devicesOf(known).map((device) => [`memory ${device.name}`, [
    { times: known.times, values: device.live, style: "live" },
    { times: known.times, values: device.cached, style: "cached" },
    { times: known.times, values: device.pending, style: "pending" },
  ]]);
  const [times, values] = [known.process.map((p) => p[0]), known.process.map((p) => p[1])];
  charts.push(["whole process", [{ times, values, style: "process" }]]);
  charts.forEach(([name, lines], k) => {
    drawChart(pen, layout.memory + k * (CHART + GAP), narrow(name), inBytes, lines);
  });
}

// The CPU, then the others.
function devicesOf(known) {
  const key = ({ name }) => (name.startsWith("cpu") ? 0 : 1);
  return [...known.devices].sort((a, b) => key(a) - key(b) || a.name.localeCompare(b.name));
}

const DASHES = { live: [], cached: [6, 3], pending: [1.5, 2.5], process: [8, 3, 1.5, 3] };
const LINES = {
  live: "compute-edge", cached: "compute-edge", pending: "accent-edge", process: "quiet",
};

// Lines over time, all on one scale from 0 to the most that is seen.
function drawChart(pen, top, name, words, lines) {
  const { context, layout } = pen;
  const bottom = top + CHART;
  let most = 0;
  const cuts = lines.map(({ times, values }) => {
    // The last before what is seen, to the first behind it.
    const from = Math.max(0, after(times, pen.begin) - 1);
    const to = Math.min(times.length, after(times, pen.end) + 1);
    for (let i = from; i < to; i++) most = Math.max(most, values[i]);
    return [from, to];
  });
  pen.text(name, layout.left - 8, top + CHART / 2, { align: "right", room: layout.left - 10 });
  pen.line(layout.left, bottom + 0.5, layout.right, bottom + 0.5, "line");
  if (!most) {
    pen.text("0", layout.left - 8, bottom - 4, { align: "right", colour: "quiet", size: 10 });
    return;
  }
  const scale = (CHART - 4) / most;
  context.save();
  context.beginPath();
  context.rect(layout.left, top - 2, layout.right - layout.left, CHART + 4);
  context.clip();
  lines.forEach(({ times, values, style }, k) => {
    const [from, to] = cuts[k];
    if (to - from < 1) return;
    context.beginPath();
    let y = bottom - scale * values[from];
    context.moveTo(pen.x(times[from]), y);
    for (let i = from + 1; i < to; i++) {
      const x = pen.x(times[i]);
      context.lineTo(x, y); // what was held stays so until the next sample
      y = bottom - scale * values[i];
      context.lineTo(x, y);
    }
    context.lineTo(Math.min(layout.right, pen.x(Math.max(times[to - 1], pen.now))), y);
    context.lineWidth = 1.4;
    context.setLineDash(DASHES[style] ?? []);
    context.strokeStyle = pen.colour(LINES[style] ?? "compute-edge");
    context.stroke();
    if (style === "area") {
      context.lineTo(pen.x(Math.max(times[to - 1], pen.now)), bottom);
      context.lineTo(pen.x(times[from]), bottom);
      context.fillStyle = pen.colour("compute");
      context.globalAlpha = 0.5;
      context.fill();
    }
  });
  context.restore();
  context.setLineDash([]);
  const high = { align: "right", colour: "quiet", size: 10 };
  pen.text(words(most), layout.left - 8, top + 3, high);
  pen.text("0", layout.left - 8, bottom - 3, high);
}

// The first index whose time is later.
function after(times, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawAxis(pen) {
  const { context, layout } = pen;
  const span = pen.end - pen.begin;
  const [unit, us] = span > 5e6 ? ["s", 1e6] : span > 5e3 ? ["ms", 1e3] : ["us", 1];
  const rough = span / us / Math.max(2, (layout.right - layout.left) / 90);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((each) => each >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const y = layout.axis;
  pen.line(layout.left, y + 0.5, layout.right, y + 0.5, "quiet");
  for (let t = Math.ceil(pen.begin / us / step) * step; t <= pen.end / us; t += step) {
    const x = pen.x(t * us);
    context.lineWidth = 1;
    pen.line(x, 0, x, y + 4, "line");
    if (x < layout.right - 8) {
      pen.text(t.toFixed(digits), x, y + 11, { align: "center", colour: "quiet", size: 10 });
    }
  }
  const words = `${unit} since watch() began`;
  pen.text(words, (layout.left + layout.right) / 2, y + 25, { align: "center", colour: "quiet" });
}

// -- words about what was clicked ------------------------------------------------------------------

function wordsOf(known, bar) {
  const name = (number) => {
    const other = known.operations.get(number);
    return other ? `${number} ${other.name}` : `${number} (forgotten)`;
  };
  const us = (time) => inTime(time / 1e6);
  if (bar.wait) {
    const lines = [["wait", `${bar.name}, ${us(bar.end - bar.begin)}${bar.open ? " so far" : ""}`]];
    if (bar.operation) lines.push(["for", name(bar.operation)]);
    return [...lines, ["line", bar.where]];
  }
  const ran = `ran ${us(bar.end - bar.begin)}${bar.open ? " so far" : ""}`;
  const lines = [["operation", `${bar.number} ${bar.name}, ${ran}`]];
  if (bar.about) lines.push(["shapes", bar.about]);
  lines.push(["line", bar.where]);
  if (!bar.open) {
    const last = known.waitedFor(bar);
    const pending = bar.ready - bar.pushed;
    lines.push([
      "waited",
      `${us(pending)} for what it needs${last ? `, at last for ${name(last.number)}` : ""}; ` +
        `${us(bar.begin - bar.ready)} for a worker`,
    ]);
    lines.push(["issued at", us(bar.pushed)]);
  }
  if (bar.needs.length) lines.push(["needs", bar.needs.map(name).join(", ")]);
  if (bar.room.length) lines.push(["makes room for", bar.room.map(name).join(", ")]);
  const users = bar.open ? [] : neededBy(known, bar).slice(0, 8);
  if (users.length) lines.push(["needed by", users.map((each) => name(each.number)).join(", ")]);
  if (bar.failure) lines.push(["failed", bar.failure]);
  return lines;
}

// -- a view ----------------------------------------------------------------------------------------

function legend() {
  const line = (kind, words) => {
    const swatch = element("span", { class: "d2l-watch-line", "aria-hidden": "true" });
    const dash = (DASHES[kind] ?? []).join(" ");
    const colour = `var(--d2l-${LINES[kind] ?? "accent-edge"})`;
    const tip = kind === "arrow" ? `<path d="M22 1l5 4l-5 4z" fill="${colour}"/>` : "";
    swatch.innerHTML =
      `<svg width="28" height="10"><path d="M0 5h26" fill="none" stroke="${colour}" ` +
      `stroke-width="1.6" stroke-dasharray="${dash}"/>${tip}</svg>`;
    return element("span", { class: "d2l-legend-entry" }, swatch, words);
  };
  return element(
    "div", { class: "d2l-legend" },
    legendEntry("compute", "compute"), legendEntry("copy", "copy"), legendEntry("wait", "wait"),
    legendEntry("failed", "failed"), line("arrow", "waited for"),
    line("live", "live"), line("cached", "cached"), line("pending", "pending"),
    line("process", "whole process"),
  );
}

const HELP =
  "Timeline of the engine. Left and right arrow: move, or, once an operation is chosen, the " +
  "previous and next; Enter: choose; up and down: other lanes; plus and minus: zoom; Home: all; " +
  "End: follow; space: pause; Escape: choose nothing.";

const INVITATION =
  "Click an operation or a wait to see what it was and what it waited for. " +
  "Drag to move; once clicked, the wheel zooms.";

function show(known, window_, el, views) {
  el.classList.add("d2l-widget", "d2l-watch");
  let bars = [];
  let layout = null;
  let pen = null;
  const picture = drawing(120, (context, width) => {
    layout = layoutOf(known, width);
    picture.resize(layout.height);
    pen = new Pen(context, el, layout, window_.seen());
    pen.now = known.state.now;
    bars = draw(pen, known, window_.selected);
  });
  const { canvas, again } = picture;
  canvas.setAttribute("aria-label", HELP);
  canvas.setAttribute("role", "application");
  const words = element("dl", { class: "d2l-watch-words", "aria-live": "polite" });
  const status = element("span", { class: "d2l-quiet d2l-watch-status" });

  const press = (change) => () => {
    change();
    views.forEach((each) => each());
  };
  const pause = button("Pause", "Stop the picture; the recording goes on (space)", press(() => {
    window_.paused = !window_.paused;
  }));
  const follow = button("Follow", "Show the last moments, as they come (End)", press(() => {
    [window_.mode, window_.paused] = ["follow", false];
    window_.width = Math.min(window_.width, FOLLOWED_US);
  }));
  const all = button("All", "Show everything that is remembered (Home)", press(() => {
    [window_.mode, window_.paused] = ["all", false];
  }));
  const bar = element(
    "div", { class: "d2l-bar" }, pause, follow, all,
    button("−", "Zoom out (minus)", press(() => window_.zoom(1.6))),
    button("+", "Zoom in (plus)", press(() => window_.zoom(1 / 1.6))),
    button("◀", "Earlier (left arrow)", press(() => window_.pan(-0.3))),
    button("▶", "Later (right arrow)", press(() => window_.pan(0.3))),
    element("span", { class: "d2l-space" }), status,
  );

  const choose = (found) => {
    window_.selected = found;
    if (found) window_.show(found);
    views.forEach((each) => each());
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  // The bar at a place of the canvas, or next to it.
  const barAt = (x, y) => {
    const n = Math.floor(y / ROW);
    const lane = layout?.lanes[n];
    if (!lane || x < layout.left) return null;
    const time = pen.begin + (x - layout.left) / pen.perUs;
    const [slack, first] = [3 / pen.perUs, firstAt(lane.bars, time - 3 / pen.perUs)];
    const near = [...lane.bars.slice(first, first + 8), ...lane.going];
    const away = (each) => Math.max(each.begin - time, time - each.end, 0);
    const found = near.filter((each) => away(each) <= slack).sort((a, b) => away(a) - away(b))[0];
    if (found?.wait) found.lane = n;
    return found ?? null;
  };

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: at(event)[0], moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!drag) {
      const found = barAt(x, y);
      canvas.style.cursor = found ? "pointer" : "grab";
      const told = found ? wordsOf(known, found).slice(0, 3) : [];
      canvas.title = told.map((each) => each[1]).join("\n");
      return;
    }
    if (drag.moved || Math.abs(x - drag.x) > 4) {
      window_.pan((drag.x - x) / (layout.right - layout.left));
      drag = { x, moved: true };
      views.forEach((each) => each());
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) choose(barAt(...at(event)));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("wheel", (event) => {
    // The page scrolls over it, until it was clicked.
    if (document.activeElement !== canvas && !event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) window_.pan(event.deltaX / 800);
    else {
      const share = (at(event)[0] - layout.left) / (layout.right - layout.left);
      window_.zoom(1.0015 ** event.deltaY, Math.min(1, Math.max(0, share)));
    }
    views.forEach((each) => each());
  }, { passive: false });

  const step = (by) => {
    const chosen = window_.selected;
    const n = chosen.wait ? chosen.lane : laneOf(layout, known, chosen);
    const lane = layout.lanes[n];
    const found = lane?.bars[lane.bars.indexOf(chosen) + by];
    if (found?.wait) found.lane = n;
    if (found) choose(found);
  };
  // The bar of another lane that is nearest in time.
  const climb = (by) => {
    const chosen = window_.selected;
    const n = (chosen.wait ? chosen.lane : laneOf(layout, known, chosen)) + by;
    const lane = layout.lanes[n];
    if (!lane?.bars.length) return;
    const found = lane.bars[Math.min(firstAt(lane.bars, chosen.begin), lane.bars.length - 1)];
    if (found.wait) found.lane = n;
    choose(found);
  };
  const middle = () => {
    const time = (pen.begin + pen.end) / 2;
    const near = bars.map(([each]) => each).filter((each) => !each.open && !each.wait);
    near.sort((a, b) => Math.abs(a.begin - time) - Math.abs(b.begin - time));
    choose(near[0] ?? [...known.operations.values()].filter((each) => each.row >= 0).pop() ?? null);
  };
  canvas.addEventListener("keydown", (event) => {
    const chosen = window_.selected;
    const keys = {
      ArrowLeft: () => (chosen ? step(-1) : window_.pan(-0.2)),
      ArrowRight: () => (chosen ? step(1) : window_.pan(0.2)),
      ArrowUp: () => (chosen ? climb(-1) : middle()),
      ArrowDown: () => (chosen ? climb(1) : middle()),
      Enter: middle,
      Escape: () => choose(null),
      "+": () => window_.zoom(1 / 1.6),
      "=": () => window_.zoom(1 / 1.6),
      "-": () => window_.zoom(1.6),
      " ": () => pause.click(),
      Home: () => all.click(),
      End: () => follow.click(),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
    views.forEach((each) => each());
  });

  const renew = () => {
    const { state } = known;
    again();
    pause.textContent = window_.paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", window_.paused);
    follow.setAttribute("aria-pressed", window_.mode === "follow");
    all.setAttribute("aria-pressed", window_.mode === "all");
    const going = state.waiting.map((each) => ` · waiting at ${placeOf(known.text(each[3]))}`);
    status.textContent =
      `${state.live ? "live" : "over"} · ${state.count} operations, ${state.queued} queued` +
      going.join("");
    canvas.dataset.events = known.operations.size;
    const chosen = window_.selected;
    const lines = chosen ? wordsOf(known, chosen) : [];
    const told = lines.map((each) => each.join("\t")).join("\n");
    if (words.dataset.told !== told) {
      words.dataset.told = told;
      words.replaceChildren(
        ...lines.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]),
      );
      if (!lines.length) {
        words.append(element("dd", { class: "d2l-quiet" }, INVITATION));
      }
    }
  };
  words.dataset.told = "?";
  el.replaceChildren(bar, canvas, legend(), words);
  const endTheme = onTheme(again);
  renew();
  return {
    renew,
    end() {
      endTheme();
      picture.end();
    },
  };
}

export default () => {
  const known = new Known();
  const window_ = new Window(known);
  const views = new Set();
  return {
    initialize({ model }) {
      listen(model, (header, buffers) => {
        const was = known.state.live;
        known.take(header, buffers);
        // When it is over all of it is shown, unless somebody is looking at a part.
        if (was && !header.live && window_.mode === "follow") window_.mode = "all";
        if (!was && !header.live) window_.mode = window_.mode === "free" ? "free" : "all";
        if (!window_.paused) views.forEach((each) => each());
      });
    },
    render({ model, el }) {
      const view = show(known, window_, el, views);
      views.add(view.renew);
      onRestart(model, el);
      return () => {
        views.delete(view.renew);
        view.end();
      };
    },
  };
};
