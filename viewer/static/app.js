// The pages: a run, an episode, its group, two sets compared. The address after # names the page, so that it can be sent.
const PAGE = 50, POLL = 3000, MAX_GROUP = 16;
const FAULTS = new Set(["error", "timeout", "cancelled"]); // what they end has no score
const HIDDEN = new Set(["environment", "flags", "info.index", "info.advantage", "info.saved"]);
const state = {set: 0, where: "", search: "", sort: "line", down: false, start: 0, rows: [], busy: 0, asked: 0};
const main = document.getElementById("main"), status = document.getElementById("status");

function say(text) { status.textContent = makeVisible(text); }

function linkTo(...parts) { return `#/${parts.join("/")}`; }

function showHeader() {
  const choose = (name, chosen, go) => h("select", {"aria-label": name, on: {change: (event) => go(Number(event.target.value))}},
    data.sets.map((one, n) => h("option", {value: n, selected: n === chosen}, makeVisible(one.name))));
  const other = data.sets.length > 1 ? [" compare with ", h("select", {"aria-label": "compare with", on: {change: (event) => {
    if (event.target.value !== "") location.hash = linkTo("compare", state.set, event.target.value);
  }}}, h("option", {value: ""}, "…"), data.sets.map((one, n) => n === state.set ? null : h("option", {value: n}, makeVisible(one.name))))] : [];
  document.getElementById("header").replaceChildren(
    h("nav", {"aria-label": "sets of episodes"}, h("strong", {}, "viewbox "), choose("set of episodes", state.set, (set) => { location.hash = linkTo("run", set); }), ...other),
    h("div", {}, h("button", {type: "button", on: {click: switchTheme}}, "light or dark"), " ",
      h("button", {type: "button", on: {click: showHelp}, "aria-keyshortcuts": "?"}, "keys (?)")));
}

function switchTheme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("viewbox-theme", root.dataset.theme); } catch { /* a file may have no storage */ }
}

function showHelp() {
  const dialog = h("dialog", {"aria-label": "keys"}, makeTable("Keys", ["key", "what it does"], [
    ["j or →", "the next episode of the table"], ["k or ←", "the previous one"], ["g", "all episodes of this task in this step"],
    ["t", "back to the table"], ["/", "search"], ["?", "this list; Escape closes it"]]),
  h("button", {type: "button", on: {click: () => dialog.close()}}, "close"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// ---------------------------------------------------------------------- a run
function listCurves(table, curves) {
  if (curves) {
    const pick = (test) => Object.fromEntries(Object.entries(curves.series).filter(([name, values]) => test(name, values)));
    return [["Reward over training, mean over tasks", curves.step, pick((name) => /^(reward|rewards\/.*|held_out\/(reward|blind))$/.test(name))],
      ["Why answers are wrong, over training", curves.step, pick((name, values) => name.startsWith("verdict/") && values.some((one) => one > 0))],
      ["Tools over training", curves.step, pick((name) => name.startsWith("tools/"))],
      ["Ends over training", curves.step, pick((name, values) => name.startsWith("end/") && values.some((one) => one > 0))]];
  }
  const steps = table.columns["info.step"] ?? [], order = [...new Set(steps)].filter((one) => typeof one === "number").sort((a, b) => a - b);
  if (order.length < 2) return [];
  const average = (measure) => {
    const found = new Map(order.map((step) => [step, new Map()]));
    steps.forEach((step, row) => {
      const value = measure(row), tasks = found.get(step), task = table.columns["task.id"][row];
      if (typeof value === "number" && tasks) tasks.set(task, [...tasks.get(task) ?? [], value]);
    });
    const mean = (values) => values.reduce((a, b) => a + b) / values.length;
    return order.map((step) => (found.get(step).size ? mean([...found.get(step).values()].map(mean)) : null));
  };
  const scores = Object.keys(table.columns).filter((name) => name.startsWith("scores.")).slice(0, 9);
  const ends = [...new Set(table.columns.end_reason)].slice(0, 9);
  const score = (name) => (row) => (FAULTS.has(table.columns.end_reason[row]) ? null : table.columns[name][row]);
  return [["Reward by step, mean over tasks", order, Object.fromEntries(scores.map((name) => [name === "scores.total" ? "reward" : name.slice(18), average(score(name))]))],
    ["Episodes with a tool call, by step", order, {"tool rate": average((row) => Number(table.columns.tools_used[row]?.length > 0))}],
    ["Why answers are wrong, by step", order, Object.fromEntries(listVerdicts(table.columns).map(([name]) => [name, average((row) => (table.columns.verdict[row] ? Number(table.columns.verdict[row] === name) : null))]))],
    ["Ends by step", order, Object.fromEntries(ends.map((end) => [end, average((row) => Number(table.columns.end_reason[row] === end))]))]];
}

// The verdicts of a table, each with the number of its episodes.
function listVerdicts(columns) {
  return Object.keys(VERDICTS).map((name) => [name, (columns.verdict ?? []).filter((one) => one === name).length]).filter(([, count]) => count);
}

// What part of each step is saved, if it is not all: the curves of training are over all.
function describePart(table) {
  const part = table.columns["info.saved"]?.find((one) => one);
  return part ? ` (saved: ${part} episodes of each step)` : "";
}

// What a row is: of a set that nobody has played, a task.
function nameRows(table) { return table.columns.end_reason || !table.columns.line.length ? "episodes" : "tasks"; }

async function showRun(set) {
  const table = await data.loadTable(set, true), about = data.sets[set];
  const plots = h("div", {class: "plots"}), draw = () => fill(plots,
    listCurves(table, data.sets[set].curves).filter(([, , series]) => Object.keys(series).length).map(([title, x, series]) => drawPlot(title, x, series)),
    table.columns["scores.total"]?.some((value) => value !== null) ? drawHistogram(`Distribution of the reward${describePart(table)}`, table.columns["scores.total"]) : null);
  const body = h("tbody", {}), head = h("thead", {}), pager = h("div", {class: "pager"}), problem = h("p", {class: "problem", role: "alert"});
  const where = h("input", {type: "search", id: "where", size: 40, placeholder: "reward<0.5 and tool=zoom", "aria-label": "filter, as score --where", value: state.where});
  const search = h("input", {type: "search", id: "search", placeholder: "words", "aria-label": "search in all texts", value: state.search});
  const refresh = () => fillTable(set, table, {body, head, pager, problem}, refresh);
  const choose = (name) => () => { where.value = state.where = name ? `verdict=${name}` : ""; state.start = 0; refresh(); };
  const verdicts = listVerdicts(table.columns).map(([name, count]) => h("button", {type: "button", title: VERDICTS[name], on: {click: choose(name)}}, `${name} ${count}`));
  let later = 0;
  for (const [input, name] of [[where, "where"], [search, "search"]]) input.addEventListener("input", () => {
    clearTimeout(later);
    later = setTimeout(() => { state[name] = input.value; state.start = 0; refresh(); }, 120);
  });
  const lost = table.skipped ? h("details", {class: "problem"}, h("summary", {}, `${table.skipped} lines cannot be read`), h("ul", {}, Object.entries(table.unreadable).map(([line, why]) => h("li", {}, t(`line ${line}: ${why}`))))) : null;
  fill(main, h("h1", {}, t(about.name)), h("p", {class: "path"}, t(about.path)), lost, plots,
    h("div", {class: "controls", role: "search"}, h("label", {}, "filter ", where), h("label", {}, "search ", search),
      verdicts.length ? h("span", {role: "group", "aria-label": "by verdict"}, verdicts, h("button", {type: "button", on: {click: choose("")}}, "all")) : null), problem, pager,
    h("div", {class: "scroll"}, h("table", {class: "episodes"}, h("caption", {}, nameRows(table).replace(/^./, (letter) => letter.toUpperCase())), head, body)));
  draw();
  refresh();
  return () => { draw(); refresh(); };
}

function sortRows(rows, values, down) {
  const rank = (value) => (value === null || value === undefined ? 2 : typeof value === "number" ? 0 : 1);
  const keys = new Map(rows.map((row) => [row, values[row]]));
  return rows.sort((a, b) => {
    const x = keys.get(a), y = keys.get(b), kind = rank(x) - rank(y);
    if (kind || rank(x) === 2) return kind || a - b; // what is missing stands last, in both directions
    const order = typeof x === "number" ? x - y : formatCell(x) < formatCell(y) ? -1 : formatCell(x) > formatCell(y) ? 1 : 0;
    return (down ? -order : order) || a - b;
  });
}

function nameColumn(name) {
  return name.replace(/^scores\.total$/, "reward").replace(/^scores\.components\./, "reward.").replace(/^task\.id$/, "task").replace(/^task\.reference/, "reference")
    .replace(/^info\./, "").replace(/^tools_used$/, "tool").replace(/^num_turns$/, "replies").replace(/^tool_call_count$/, "calls").replace(/^end_reason$/, "end");
}

async function fillTable(set, table, parts, refresh) {
  const turn = ++state.asked;
  const clear = (text) => { parts.body.replaceChildren(); parts.pager.replaceChildren(h("span", {}, text)); };
  const slow = setTimeout(() => { if (turn === state.asked) { parts.problem.textContent = ""; clear("searching …"); } }, 200);
  try {
    const rows = await data.select(set, splitConditions(state.where));
    if (turn !== state.asked) return; // typed on since, or left the page
    state.rows = sortRows(searchRows(rows, table.columns, state.search), table.columns[state.sort] ?? table.columns.line, state.down);
    parts.problem.textContent = "";
  } catch (error) {
    if (turn === state.asked) { parts.problem.textContent = makeVisible(error.message); state.rows = []; clear(`no ${nameRows(table)}`); }
    return;
  } finally { clearTimeout(slow); }
  const said = new URLSearchParams(Object.entries({where: state.where, search: state.search, sort: state.sort === "line" ? "" : state.sort, down: state.down ? "1" : ""}).filter(([, one]) => one));
  history.replaceState(null, "", linkTo("run", set) + (said.size ? `?${said}` : ""));
  const names = Object.keys(table.columns).filter((name) => !HIDDEN.has(name) && !name.startsWith("task.metadata") && table.columns[name].some((one) => one !== null && one !== "")).slice(0, 24);
  parts.head.replaceChildren(h("tr", {}, names.map((name) => h("th", {scope: "col", "aria-sort": state.sort === name ? (state.down ? "descending" : "ascending") : null},
    h("button", {type: "button", title: makeVisible(name), on: {click: () => {
      state.down = state.sort === name ? !state.down : name.startsWith("scores.");
      Object.assign(state, {sort: name, start: 0});
      refresh();
    }}}, makeVisible(nameColumn(name)), state.sort === name ? (state.down ? " ↓" : " ↑") : "")))));
  const page = state.rows.slice(state.start, state.start + PAGE);
  parts.body.replaceChildren(...page.map((row) => h("tr", {}, names.map((name) => {
    const value = table.columns[name][row];
    if (name === "line") return h("th", {scope: "row"}, h("a", {href: linkTo("run", set, "episode", value)}, `#${value}`));
    return h("td", {class: typeof value === "number" ? "number" : ""}, t(formatCell(value)));
  }))));
  const goTo = (to) => () => { state.start = to; refresh(); };
  const last = Math.max(0, Math.floor((state.rows.length - 1) / PAGE) * PAGE);
  parts.pager.replaceChildren(
    h("span", {}, `${state.rows.length.toLocaleString("en")} of ${table.columns.line.length.toLocaleString("en")} ${nameRows(table)}`),
    h("button", {type: "button", disabled: state.start === 0, on: {click: goTo(Math.max(0, state.start - PAGE))}}, "previous"),
    h("span", {}, state.rows.length ? `${state.start + 1} to ${Math.min(state.start + PAGE, state.rows.length)}` : "none"),
    h("button", {type: "button", disabled: state.start >= last, on: {click: goTo(state.start + PAGE)}}, "next"));
}

// ---------------------------------------------------------------------- an episode
async function prepareRows(set) {
  const table = await data.loadTable(set);
  if (!state.rows.length || state.of !== set) {
    state.rows = table.columns.line.map((_, row) => row);
    state.of = set;
  }
  return table;
}

async function showEpisodePage(set, line) {
  const table = await prepareRows(set), page = await data.loadEpisode(set, line);
  const place = state.rows.findIndex((row) => table.columns.line[row] === line);
  const to = (step) => { const row = state.rows[place + step]; return place < 0 || row === undefined ? null : linkTo("run", set, "episode", table.columns.line[row]); };
  const step = (name, where) => (where ? h("a", {href: where, class: "button"}, name) : h("span", {class: "button off"}, name));
  fill(main, h("p", {class: "trail"}, h("a", {href: linkTo("run", set)}, t(data.sets[set].name)), ` #${line} `, step("← previous", to(-1)), " ", step("next →", to(1)), " ", h("a", {href: linkTo("run", set, "group", line), class: "button"}, "group")),
    h("h1", {}, t(page.task || "(no name)"), page.scores ? ` reward ${formatNumber(page.scores.total)}` : ""), showText(page.question, "question"), ...showEpisode(page, set));
  return {previous: to(-1), next: to(1), group: linkTo("run", set, "group", line), table: linkTo("run", set)};
}

async function showGroupPage(set, line) {
  const {columns} = await prepareRows(set), row = columns.line.indexOf(line);
  const same = (name, other) => !columns[name] || columns[name][other] === columns[name][row];
  const rows = columns.line.map((_, n) => n).filter((n) => ["task.id", "info.step"].every((name) => same(name, n)));
  rows.sort((a, b) => (columns["info.sample"]?.[a] ?? a) - (columns["info.sample"]?.[b] ?? b));
  const pages = [];
  for (const one of rows.slice(0, MAX_GROUP)) pages.push(await data.loadEpisode(set, columns.line[one]));
  fill(main, h("p", {class: "trail"}, h("a", {href: linkTo("run", set)}, t(data.sets[set].name)), ` group of #${line}`), h("h1", {}, t(String(columns["task.id"][row]))),
    rows.length > MAX_GROUP ? h("p", {}, `The first ${MAX_GROUP} of ${rows.length} are shown.`) : null, ...showGroup(pages, set, (number) => linkTo("run", set, "episode", number)));
  return {table: linkTo("run", set), group: null, previous: null, next: linkTo("run", set, "episode", line)};
}

// ---------------------------------------------------------------------- addresses, keys, news
let keys = {}, refill = null;

async function route() {
  const [path, said] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s), [kind, first, sub, third] = path.split("/"), turn = ++state.busy;
  state.asked++;
  const set = Number(first || 0), line = Number(third), exists = (number) => Number.isInteger(number) && number in data.sets;
  keys = {};
  refill = null;
  try {
    if (kind && !exists(set)) throw new Error("there is no such set of episodes");
    if (kind !== "compare" && state.set !== set) Object.assign(state, {where: "", search: "", start: 0, sort: "line", down: false, rows: []});
    state.set = set;
    if (said) {
      const given = new URLSearchParams(said), read = (name) => given.get(name) ?? "";
      Object.assign(state, {where: read("where"), search: read("search"), sort: read("sort") || "line", down: read("down") === "1", start: 0});
    }
    showHeader();
    if (kind === "compare" && exists(Number(sub))) await showComparison(set, Number(sub), third ?? "");
    else if (sub === "episode") keys = await showEpisodePage(set, line);
    else if (sub === "group") keys = await showGroupPage(set, line);
    else refill = await showRun(set);
    if (turn !== state.busy) return;
    document.title = `viewbox: ${makeVisible(data.sets[set].name)}`;
    if (sub) { scrollTo(0, 0); main.focus({preventScroll: true}); }
    say(main.querySelector("h1")?.textContent ?? "");
  } catch (error) {
    fill(main, h("h1", {}, "Nothing to show"), t(error.message, "p"));
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(input|select|textarea)$/i.test(event.target.tagName)) { if (event.key === "Escape") event.target.blur(); return; }
  const go = {j: keys.next, ArrowRight: keys.next, k: keys.previous, ArrowLeft: keys.previous, g: keys.group, t: keys.table}[event.key];
  if (go) { event.preventDefault(); location.hash = go; }
  else if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); }
  else if (event.key === "?") showHelp();
});

async function follow() {
  try {
    if (refill && !document.hidden) {
      const table = await data.loadTable(state.set, true);
      if (table.added) await data.loadSets();
      if (table.added && refill) { refill(); say(`${table.added} new episodes`); }
    }
  } catch { say("the server does not answer"); }
  setTimeout(follow, POLL);
}

addEventListener("hashchange", route);
try { document.documentElement.dataset.theme = localStorage.getItem("viewbox-theme") ?? ""; } catch { /* none */ }
data.loadSets().then(route).then(() => { if (SERVED) setTimeout(follow, POLL); }, (error) => fill(main, t(error.message, "p")));
