// The page that compares two sets: figures, the reward of each task, groups by a field, tasks that only one side solves.
const CELLS = 40, MAX_VALUES = 100, TIE = 1e-9;
const GROUPED = /^(task\.(reference|metadata)|answer|end_reason|environment|tools_used|num_turns|info\.step|verdict)(\.|$)/;

function formatInterval(one) {
  return one.low === null ? formatFixed(one.mean) : `${formatFixed(one.mean)} [${formatFixed(one.low)}, ${formatFixed(one.high)}]`;
}

function markFew(tasks, few) { return tasks < few ? `${tasks} (< ${few})` : String(tasks); }

function drawShape(tag, attributes, ...children) {
  const shape = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, String(value));
  shape.append(...children);
  return shape;
}

// How often the second wins, ties and loses, as one bar.
function drawOutcomes({wins, ties, losses}) {
  const parts = [["wins", wins, "win"], ["ties", ties, "tie"], ["losses", losses, "loss"]].filter(([, count]) => count);
  return h("div", {class: "outcomes", role: "img", "aria-label": `the second ${parts.map(([name, count]) => `${name} ${count}`).join(", ")}`}, parts.map(([name, count, once]) => {
    const part = h("span", {class: name, title: "of the second"}, `${count} ${count === 1 ? once : name}`);
    part.style.flexGrow = count;
    return part;
  }));
}

// The rewards of all tasks: the first across, the second up. Tasks that lie close are one dot, larger for more.
function drawPairs(rewards, names, toEpisodes) {
  let low = 0, high = 1;
  for (const {a, b} of rewards) { low = Math.min(low, a, b); high = Math.max(high, a, b); }
  const dots = new Map(), cell = (value) => Math.round((value - low) / (high - low) * CELLS);
  for (const pair of rewards) {
    const key = `${cell(pair.a)} ${cell(pair.b)}`;
    if (!dots.has(key)) dots.set(key, []);
    dots.get(key).push(pair);
  }
  const most = Math.max(...[...dots.values()].map((some) => some.length));
  const across = (value) => 48 + 168 * (value - low) / (high - low), up = (value) => 192 - 168 * (value - low) / (high - low);
  const shapes = [...dots.values()].map((some) => {
    const {task, a, b} = some[0], kind = Math.abs(b - a) < TIE ? "ties" : b > a ? "wins" : "losses";
    const title = some.length === 1 ? `${task}: ${formatFixed(a)} and ${formatFixed(b)}` : `${some.length} tasks at about ${formatFixed(a)} and ${formatFixed(b)}, such as ${task}`;
    const dot = drawShape("circle", {cx: across(a), cy: up(b), r: 3 + 9 * Math.sqrt((some.length - 1) / Math.max(1, most)), class: kind}, drawShape("title", {}, makeVisible(title)));
    return drawShape("a", {href: toEpisodes(kind === "losses" ? 0 : 1, some[0])}, dot);
  });
  const label = (x, y, text, anchor = "middle") => drawShape("text", {x, y, "text-anchor": anchor}, text);
  const frame = [drawShape("rect", {x: 34, y: 10, width: 196, height: 196}), drawShape("line", {x1: across(low), y1: up(low), x2: across(high), y2: up(high)}),
    label(across(low), 217, low.toFixed(1)), label(across(high), 217, high.toFixed(1)), label(132, 217, "first"), label(30, up(low) + 3, low.toFixed(1), "end"), label(30, up(high) + 3, high.toFixed(1), "end"), label(30, 111, "second", "end")];
  return h("figure", {class: "plot pairs"}, h("figcaption", {}, "Mean reward of each task; a dot leads to its episodes"),
    drawShape("svg", {viewBox: "-8 4 244 218", role: "group", "aria-label": `the reward of ${rewards.length} tasks`}, ...frame, ...shapes),
    h("p", {class: "ends"}, h("span", {}, "first: ", t(names[0])), h("span", {}, "second: ", t(names[1]))));
}

// The fields by which the tasks can be grouped: 2 to 100 values among the episodes of the first set.
function listFields(columns) {
  return Object.keys(columns).filter((name) => {
    if (!GROUPED.test(name)) return false;
    const values = new Set();
    for (const value of columns[name]) if (values.add(formatCell(value)).size > MAX_VALUES) return false;
    return values.size > 1;
  });
}

function groupPairs(rewards, columns, field) {
  const values = new Map(), groups = new Map();
  columns["task.id"].forEach((task, row) => {
    const value = formatCell(columns[field][row]);
    if (columns["scores.total"][row] !== null) values.set(task, (values.get(task) ?? value) === value ? value : "(several)");
  });
  for (const {task, a, b} of rewards) {
    const value = values.get(task) ?? "";
    if (!groups.has(value)) groups.set(value, {count: 0, a: 0, b: 0, wins: 0, ties: 0, losses: 0});
    const one = groups.get(value);
    one.count++;
    one.a += a;
    one.b += b;
    one[Math.abs(b - a) < TIE ? "ties" : b > a ? "wins" : "losses"]++;
  }
  return [...groups].sort(([x], [y]) => x.localeCompare(y, "en", {numeric: true}));
}

function showGroups(rewards, columns, names, chosen, base, {average, few_tasks: few}) {
  const fields = listFields(columns), box = h("div", {});
  if (!fields.length) return null;
  const fillGroups = (field) => fill(box, field ? makeTable(`Reward by ${makeVisible(nameColumn(field))}`, [average, "tasks", ...names.map(makeVisible), "difference", "wins", "ties", "losses"],
    groupPairs(rewards, columns, field).map(([value, one]) => [t(value || "null"), markFew(one.count, few), ...[one.a, one.b, one.b - one.a].map((sum) => formatFixed(sum / one.count)), String(one.wins), String(one.ties), String(one.losses)])) : null,
  field ? h("p", {class: "path"}, `Intervals: viewbox compare … --by ${makeVisible(nameColumn(field))}`) : null);
  const select = h("select", {id: "by", on: {change: () => { history.replaceState(null, "", select.value ? `${base}/${encodeURIComponent(select.value)}` : base); fillGroups(select.value); }}},
    h("option", {value: ""}, "…"), fields.map((name) => h("option", {value: name, selected: name === chosen}, makeVisible(nameColumn(name)))));
  fillGroups(fields.includes(chosen) ? chosen : "");
  return h("div", {}, h("label", {class: "controls"}, "by ", select), box);
}

function readField(text) {
  try { return decodeURIComponent(text); } catch { return ""; }
}

async function showComparison(a, b, by) {
  const {columns} = await data.loadTable(a), found = await data.compare(a, b), names = [data.sets[a].name, data.sets[b].name];
  const heading = h("h1", {}, t(names[0]), " and ", t(names[1]));
  if (found.error) return void fill(main, heading, t(found.error, "p"));
  const rewards = found.rewards.filter(({a, b}) => Number.isFinite(a) && Number.isFinite(b));
  const row = ([name, one]) => [t(name), markFew(one.difference.tasks, found.few_tasks), formatInterval(one.a), formatInterval(one.b), formatInterval(one.difference), String(one.wins), String(one.ties), String(one.losses)];
  const toEpisodes = (side, one) => linkTo("run", [a, b][side], one[side ? "b_episodes" : "a_episodes"] > 1 ? "group" : "episode", one[side ? "b_line" : "a_line"]);
  const showSide = (side, one, count = one[side ? "b_episodes" : "a_episodes"]) => h("a", {href: toEpisodes(side, one)}, `#${one[side ? "b_line" : "a_line"]} ${formatFixed(one[side ? "b" : "a"])}${count > 1 ? ` (mean of ${count})` : ""}`);
  const flips = (title, some) => (some.length ? makeTable(`${title} (${some.length})`, ["task", ...names.map(makeVisible)], some.slice(0, 200).map((one) => [t(one.task), showSide(0, one), showSide(1, one)])) : null);
  const moves = h("div", {}), across = [...new Set(Object.values(found.moved).flatMap(Object.keys))];
  const showMoves = (from, to) => () => fill(moves, flips(`From ${from} to ${to}`, rewards.filter((one) => one.a_verdict === from && one.b_verdict === to)));
  const moved = across.length ? makeTable("Tasks by verdict: of the first, and across of the second", ["", ...across], Object.entries(found.moved).map(([from, counts]) => [from,
    ...across.map((to) => (counts[to] ? h("button", {type: "button", on: {click: showMoves(from, to)}}, String(counts[to])) : ""))])) : null;
  if (found.moved.search?.seen) showMoves("search", "seen")();
  fill(main, heading, h("p", {class: "finding"}, t(found.finding)), h("p", {}, `${found.tasks} tasks in both, each with the mean of its episodes${found.scores.reward?.difference.low == null ? "" : "; in brackets 95 % intervals over tasks"}.`),
    found.warnings.map((one) => t(`warning: ${one}`, "p")).reduce((box, one) => (box.append(one), box), h("div", {class: "problem"})),
    found.scores.reward ? drawOutcomes(found.scores.reward) : null,
    makeTable("Scores", [found.average, "tasks", ...names.map(makeVisible), "difference", "wins", "ties", "losses"], Object.entries(found.scores).map(row)),
    rewards.length ? [drawPairs(rewards, names, toEpisodes), showGroups(rewards, columns, names, readField(by), linkTo("compare", a, b), found)] : null, moved, moves,
    flips("Tasks that only the second solves", found.gained), flips("Tasks that only the first solves", found.lost));
}
