// Builds elements. Text from episodes only ever becomes the text of an element: nothing in it is read as HTML.
const LONG = 20000; // characters that are shown at first

function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    else if (name === "set") Object.assign(element, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

// Text of a stranger: marks of direction and control characters are shown, not obeyed.
function makeVisible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (one) => `\u27e8U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

function t(text, tag = "bdi") {
  return h(tag, {class: "t"}, makeVisible(text));
}

// A block of text; a long one is shown in parts.
function showText(text, kind = "") {
  const whole = String(text ?? "");
  const block = h("pre", {class: `t text ${kind}`}, makeVisible(whole.slice(0, LONG)));
  if (whole.length <= LONG) return block;
  let shown = LONG;
  const describe = () => `${(whole.length - shown).toLocaleString("en")} more characters`;
  const more = h("button", {type: "button", on: {click: () => {
    block.append(makeVisible(whole.slice(shown, shown + 10 * LONG)));
    shown = Math.min(whole.length, shown + 10 * LONG);
    if (shown >= whole.length) more.remove(); else more.textContent = describe();
  }}}, describe());
  return h("div", {}, block, more);
}

function showJson(value) {
  return value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
}

// Three digits as the command writes them: an exact half goes to the even digit, where toFixed goes away from 0.
function formatFixed(value) {
  const text = value.toFixed(3), isHalf = Number.isInteger(value * 16) && !Number.isInteger(value * 8);
  return isHalf && Number(text.at(-1)) % 2 ? (value - Math.sign(value) * 1e-4).toFixed(3) : text;
}

function formatNumber(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : showJson(value);
  return formatFixed(value);
}

function formatCell(value) {
  if (Array.isArray(value)) return value.map(showJson).join(", ");
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : formatFixed(value);
  return value === null || value === undefined ? "" : String(value);
}

const COLORS = ["#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#65a30d", "#475569", "#9333ea"];

// A plot of several series over x; hovering shows the values in its legend.
function drawPlot(title, x, series) {
  const box = h("figure", {class: "plot"}, h("figcaption", {}, title));
  const names = Object.keys(series);
  if (!names.length || !x.length) return box;
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim() || "#222";
  const axis = {stroke: ink, grid: {stroke: "rgba(128,128,128,.2)"}};
  const lines = names.map((name, n) => ({
    label: makeVisible(name), stroke: COLORS[n % COLORS.length], width: 2, spanGaps: true,
    points: {show: x.length < 40}, value: (_, value) => (value === null || value === undefined ? "–" : formatFixed(value)),
  }));
  requestAnimationFrame(() => {
    const width = Math.max(280, box.clientWidth);
    new uPlot({width, height: 220, scales: {x: {time: false}, y: {range: (_, low, high) => (low === high ? [Math.min(0, low), Math.max(1, high)] : uPlot.rangeNum(low, high, 0.1, true))}}, axes: [axis, axis], series: [{label: "step"}, ...lines]},
      [x, ...names.map((name) => series[name])], box);
  });
  return box;
}

// How many values lie in each of 20 parts of their range.
function drawHistogram(title, values) {
  const numbers = values.filter((value) => typeof value === "number");
  const box = h("figure", {class: "plot"}, h("figcaption", {}, `${title}, ${numbers.length} episodes`));
  if (!numbers.length) return box;
  let low = 0, high = 1;
  for (const value of numbers) { low = Math.min(low, value); high = Math.max(high, value); }
  const counts = new Array(20).fill(0);
  for (const value of numbers) counts[Math.min(19, Math.floor((value - low) / (high - low) * 20))]++;
  const most = Math.max(...counts);
  const bars = counts.map((count, n) => {
    const from = low + (high - low) * n / 20, to = low + (high - low) * (n + 1) / 20;
    const bar = h("span", {class: "bar", title: `${from.toFixed(2)} to ${to.toFixed(2)}: ${count}`});
    bar.style.height = `${100 * count / most}%`;
    return bar;
  });
  box.append(h("div", {class: "bars", role: "img", "aria-label": `${title}: ${counts.join(", ")} episodes in 20 parts from ${low} to ${high}`}, bars),
    h("div", {class: "ends"}, h("span", {}, low.toFixed(2)), h("span", {}, high.toFixed(2))));
  return box;
}

function makeTable(caption, headings, rows) {
  return h("div", {class: "scroll"}, h("table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, headings.map((one) => h("th", {scope: "col"}, one)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, n) =>
      n ? h("td", {}, cell) : h("th", {scope: "row"}, cell)))))));
}
