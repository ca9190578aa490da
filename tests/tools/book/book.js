// The two things of a page that need a script: its theme, and the search. Nothing is asked of a
// server: the index of words is a script beside the pages, loaded when somebody begins to search.

const root = document.documentElement;
const stored = {
  get: () => { try { return localStorage.getItem("theme") } catch { return null } },
  set: theme => { try { localStorage.setItem("theme", theme) } catch { /* a private window */ } },
};
const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
root.dataset.theme = stored.get() ?? system;  // before anything is drawn

function themeButton(button) {
  const other = () => root.dataset.theme === "dark" ? "light" : "dark";
  const label = () => { button.textContent = other() };
  button.addEventListener("click", () => {
    root.dataset.theme = other();
    stored.set(root.dataset.theme);
    label();
  });
  label();
  button.hidden = false;
}

const MOST = 20, AROUND = 60;

/** Where words begin like this one: "log" is found in `log_softmax`, not in "catalog". (Chinese has
    no spaces between words.) */
function beginning(word, flags) {
  const escaped = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return RegExp((/^[a-z0-9]/i.test(word) ? "(?<![a-z0-9])" : "") + `(${escaped})`, flags);
}

/** Sections that hold every word, those first that have them in their heading, or are it. */
function search(index, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const finds = words.map(word => beginning(word, "g"));
  const found = [];
  for (const [page, anchor, heading, text] of index.sections) {
    const title = heading.toLowerCase(), all = text.toLowerCase();
    const counts = finds.map(find => (all.match(find) ?? []).length);
    const titled = finds.map(find => title.search(find) >= 0);
    if (!words.every((_, at) => counts[at] || titled[at])) continue;
    const inTitle = titled.filter(Boolean).length;
    const times = counts.reduce((sum, count) => sum + Math.min(5, count), 0);
    const name = heading.split(".").at(-1), asked = query.trim();  // gluon.Trainer is Trainer
    const same = [name, heading].includes(asked) ? 60 : [name, heading].some(
      each => each.toLowerCase() === asked.toLowerCase()) ? 40 : 0;
    found.push({ page, anchor, heading, text, words, rank: 10 * inTitle + times + same });
  }
  return found.sort((a, b) => b.rank - a.rank);
}

/** The place of the first word with what stands around it, every word marked. */
function excerpt({ text, words }) {
  const line = document.createElement("small");
  const places = words.map(word => text.search(beginning(word, "i"))).filter(at => at >= 0);
  const near = Math.max(0, Math.min(...places, text.length) - AROUND);
  const from = near && text.indexOf(" ", near) + 1;  // where a word begins
  const shown = text.slice(from, from + 3 * AROUND);
  const marks = words.flatMap(word => [...shown.matchAll(beginning(word, "gi"))]);
  let end = 0;
  line.append(from ? "… " : "");
  for (const { 0: piece, index } of marks.sort((a, b) => a.index - b.index)) {
    if (index < end) continue;  // inside of the mark before
    const mark = document.createElement("mark");
    mark.textContent = piece;
    line.append(shown.slice(end, index), mark);
    end = index + piece.length;
  }
  line.append(shown.slice(end), " …");
  return line;
}

function searchBox(box) {
  const input = box.querySelector("input"), list = box.querySelector("ol");
  const show = () => {
    if (!globalThis.bookIndex) return;
    const found = search(bookIndex, input.value);
    const items = found.slice(0, MOST).map(hit => {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = hit.page + (hit.anchor ? "#" + encodeURIComponent(hit.anchor) : "");
      const title = bookIndex.titles[hit.page];
      link.textContent = hit.heading === title ? title : `${title}: ${hit.heading}`;
      item.append(link, excerpt(hit));
      return item;
    });
    if (input.value.trim() && !found.length) items.push("Nothing has these words.");
    if (found.length > MOST) items.push(`and ${found.length - MOST} more`);
    list.replaceChildren(...items);
  };
  input.addEventListener("focus", () => {
    if (document.querySelector("script[data-index]")) return;
    const script = document.createElement("script");
    script.src = "search-index.js";
    script.dataset.index = "";
    script.onload = show;
    document.head.append(script);
  });
  input.addEventListener("input", show);
  document.addEventListener("keydown", event => {
    if (event.key === "/" && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape" && document.activeElement === input) {
      input.value = "";
      show();
    }
  });
  box.hidden = false;
}

document.addEventListener("DOMContentLoaded", () => {
  // Beside the text where there is room; on a phone the contents are folded.
  const wide = matchMedia("(min-width: 60rem)"), menu = document.getElementById("menu");
  const fold = () => { menu.open = wide.matches };
  wide.addEventListener("change", fold);
  fold();
  themeButton(document.getElementById("theme"));
  searchBox(document.getElementById("search"));
});
