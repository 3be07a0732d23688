// The page of an episode.
const SVG = "http://www.w3.org/2000/svg";
const KINDS = {gold: "reference", answer: "answer", tool: "arguments of tools", view: "where it looked"};
const VERDICTS = {seen: "right, and the target was shown well", blind: "right without looking: the target was not shown well", search: "wrong: no closer look was on the target",
  recognition: "wrong: the target was shown, but too small, too faint or too small a part of it", forgotten: "wrong: the target was shown well, and no longer kept when it answered", decision: "wrong: the target was shown well, and the answer is another"};
const shown = {scale: 0, kinds: new Set(Object.keys(KINDS))};

function drawPolygon(corners, kind, label) {
  const shape = document.createElementNS(SVG, corners.length > 2 && !kind.endsWith("path") ? "polygon" : "polyline");
  shape.setAttribute("points", corners.map(([x, y]) => `${x},${y}`).join(" "));
  shape.setAttribute("class", `mark ${kind}`);
  const title = document.createElementNS(SVG, "title");
  title.textContent = makeVisible(`${KINDS[kind.split(" ")[0]]}: ${label}`);
  shape.append(title);
  return shape;
}

function isCorners(corners) {
  return Array.isArray(corners) && corners.length > 1 && corners.every((one) =>
    Array.isArray(one) && one.length === 2 && one.every((value) => Number.isFinite(value)));
}

function isWhole(corners) {
  return corners.every(([x, y]) => Math.min(x, 1 - x) < 0.005 && Math.min(y, 1 - y) < 0.005);
}

function describePicture(one) {
  const parts = [`${one.width}×${one.height}`];
  if (one.index) parts.push(`image_${one.index + 1}`);
  if (one.slice !== null && one.slice !== undefined) parts.push(`${one.plane ?? "frame"} ${one.slice}${one.slices ? ` of ${one.slices}` : ""}`);
  if (one.time !== null && one.time !== undefined) parts.push(`time ${one.time}`);
  if (one.window) parts.push(`window ${showJson(one.window)}`);
  if (one.dropped_at !== null && one.dropped_at !== undefined) parts.push(`no longer seen from reply ${one.dropped_at + 1} on`);
  return parts.join(", ");
}

// The looks at a picture: the parts that later pictures show, darker the more they magnify, and the path from one to the next.
function drawLooks(page, id) {
  const looks = Object.entries(page.pictures).filter(([other, view]) => other !== id && view.original === id && isCorners(view.outline) && !isWhole(view.outline));
  const replies = new Map();
  let reply = 0;
  for (const turn of page.turns) {
    reply += turn.role === "assistant";
    for (const part of turn.parts) if (part.picture) replies.set(part.picture, reply);
  }
  const middles = [], shapes = looks.map(([other, view]) => {
    const [xs, ys] = [0, 1].map((axis) => view.outline.map((corner) => corner[axis])), wide = Math.max(...xs) - Math.min(...xs);
    const times = Math.max(view.width, view.height) / Math.max(1, wide * page.pictures[id].width);
    middles.push([(Math.max(...xs) + Math.min(...xs)) / 2, (Math.max(...ys) + Math.min(...ys)) / 2]);
    const shape = drawPolygon(view.outline, "view", `${other}, after reply ${replies.get(other) ?? 0}, ${formatNumber(times)} times as large`);
    shape.style.fillOpacity = Math.min(0.4, 0.05 * times);
    return shape;
  });
  return middles.length > 1 ? [...shapes, drawPolygon(middles, "view path", "the path of the looks")] : shapes;
}

function showPicture(page, id, set, name) {
  const one = page.pictures[id];
  if (!one) return t(`picture ${id} is missing`, "p");
  const source = data.getPicture(set, page.line, one.hash);
  const overlay = document.createElementNS(SVG, "svg");
  overlay.setAttribute("viewBox", "0 0 1 1");
  overlay.setAttribute("preserveAspectRatio", "none");
  overlay.setAttribute("aria-hidden", "true");
  for (const box of one.boxes ?? []) if (isCorners(box.corners)) overlay.append(drawPolygon(box.corners, box.kind, showJson(box.label)));
  overlay.append(...drawLooks(page, id));
  const frame = h("div", {class: "frame"});
  const image = h("img", {alt: makeVisible(`${name}, ${describePicture(one)}`), on: {error: () => frame.replaceChildren(h("p", {class: "problem"}, "This picture cannot be opened."))}});
  frame.append(image, overlay);
  frame.dataset.width = one.width;
  setScale(frame);
  if (source === null) frame.replaceChildren(h("p", {class: "problem"}, "This picture cannot be opened.")); else image.src = source;
  return h("figure", {class: "picture", id: `picture-${id}`}, frame, h("figcaption", {}, t(`${name}: ${describePicture(one)}`)));
}

// 0: as large as fits, small pictures enlarged; otherwise screen pixels for a pixel of the picture.
function setScale(frame) {
  const width = Number(frame.dataset.width) || 1;
  frame.style.width = `${shown.scale ? width * shown.scale : Math.min(560, Math.max(width, 280))}px`;
}

function showArguments(value) {
  if (typeof value === "string") return value; // of a call that is not JSON
  const line = JSON.stringify(value ?? {});
  return line.length <= 120 ? line : JSON.stringify(value, null, 1);
}

function showPart(page, part, set, first) {
  const name = part.name ?? (first ? "overview" : "picture");
  if (part.type === "picture") return [showPicture(page, part.picture, set, name)];
  if (part.type === "thinking") return [h("details", {class: "thinking"}, h("summary", {}, `thinking (${part.text.length} characters)`), showText(part.text))];
  if (part.type === "call") return [h("div", {class: "call"}, h("strong", {}, t(part.name || "call without a name")), showText(showArguments(part.arguments)))];
  if (part.type === "finish") return [h("p", {class: "finish"}, t(`finish reason: ${part.text}`))];
  if (part.type === "nudge") return [h("div", {class: "nudge"}, h("strong", {}, t(`nudge: ${part.reason}`)), showText(part.text))];
  if (part.type === "result") {
    const said = part.error ? h("div", {class: "problem"}, showText(part.error)) : showText(part.text ?? "");
    return [h("div", {class: "result"}, h("strong", {}, t(`result of ${part.name}`)), said, part.picture ? showPicture(page, part.picture, set, name) : null)];
  }
  return [showText(part.text ?? "")];
}

// What a reply earned of the reward, and its advantage, where they are known by reply.
function describeCredit(page, reply) {
  const known = [["earned", page.scores?.turns], ["advantage", page.info?.advantage]].filter(([, values]) => Array.isArray(values) && reply < values.length);
  return known.length ? `: ${known.map(([name, values]) => `${name} ${formatNumber(values[reply])}`).join(", ")}` : "";
}

// The sections of the turns; `build` makes the content of one: the parts as they are, if it is left out.
function showTurns(page, set, build = (turn, n) => turn.parts.flatMap((part) => showPart(page, part, set, n === 0))) {
  let replies = 0;
  return page.turns.map((turn, n) => {
    const title = turn.role === "assistant" ? `reply ${++replies}` : turn.role === "tool_result" ? "tools" : turn.role;
    return h("section", {class: `turn ${turn.role === "assistant" ? "own" : ""}`, "aria-label": title}, h("h3", {}, t(title + (turn.role === "assistant" ? describeCredit(page, replies - 1) : ""))), build(turn, n));
  });
}

function showScores(page) {
  const scores = page.scores;
  if (!scores) return null;
  const names = Object.keys({...scores.components, ...scores.faults});
  const reason = (name) => scores.faults?.[name] ? `failed: ${scores.faults[name]}` : scores.reasons?.[name] ?? "";
  return makeTable("Scores", ["", "score", "why"], [["reward", formatNumber(scores.total), ""],
    ...names.map((name) => [t(name), formatNumber(scores.components[name]), t(reason(name))])]);
}

function showLooks(looks) {
  if (!looks) return null;
  return h("div", {}, makeTable("Looks", ["", "value"], [["verdict", looks.verdict ? `${looks.verdict}, ${VERDICTS[looks.verdict] ?? ""}` : "no score"], ...Object.entries(looks.figures).map(([name, value]) => [name, formatNumber(value)])]), t(looks.why, "p"));
}

function showTokens(tokens) {
  if (!tokens?.length) return null;
  const box = h("p", {class: "tokens"});
  const choose = h("select", {"aria-label": "what colors the tokens"}, ["mask", "logprob", "advantage"].map((one) => h("option", {value: one}, one)));
  const fill = () => {
    const largest = Math.max(1e-6, ...tokens.slice(0, 5000).map((one) => Math.abs(one.advantage ?? 0)));
    box.replaceChildren(...tokens.slice(0, 5000).map((one) => {
      const tip = `token ${one.id}${one.logprob === null ? "" : `, log-prob ${one.logprob.toFixed(3)}`}${one.advantage === null ? "" : `, advantage ${one.advantage.toFixed(3)}`}`;
      const span = h("span", {class: one.mask ? "token own" : "token", title: tip}, String(one.id));
      if (choose.value === "logprob" && one.logprob !== null) span.style.background = `rgba(220, 38, 38, ${Math.min(1, -one.logprob / 3)})`;
      if (choose.value === "advantage" && one.advantage !== null) span.style.background = one.advantage > 0 ? `rgba(5, 150, 105, ${0.8 * one.advantage / largest})` : `rgba(220, 38, 38, ${-0.8 * one.advantage / largest})`;
      return span;
    }));
  };
  choose.addEventListener("change", fill);
  const details = h("details", {on: {toggle: () => { if (details.open && !box.childNodes.length) fill(); }}},
    h("summary", {}, `${tokens.length} tokens, ${tokens.filter((one) => one.mask).length} of them sampled by the policy`),
    h("label", {}, "colored by ", choose), box, tokens.length > 5000 ? h("p", {}, "the first 5000 are shown") : null);
  return details;
}

function showControls() {
  const scale = h("select", {"aria-label": "size of pictures", on: {change: () => {
    shown.scale = Number(scale.value);
    document.querySelectorAll(".frame").forEach(setScale);
  }}}, [[0, "fit"], [1, "1×"], [2, "2×"], [4, "4×"], [8, "8×"]].map(([value, name]) => h("option", {value, selected: value === shown.scale}, name)));
  const boxes = Object.entries(KINDS).map(([kind, name]) => h("label", {class: `legend ${kind}`}, h("input", {type: "checkbox", checked: shown.kinds.has(kind), on: {change: (event) => {
    if (event.target.checked) shown.kinds.add(kind); else shown.kinds.delete(kind);
    hideKinds();
  }}}), ` ${name}`));
  return h("div", {class: "controls", role: "group", "aria-label": "pictures"}, h("label", {}, "pictures ", scale), boxes);
}

function hideKinds() {
  for (const kind of Object.keys(KINDS)) document.body.classList.toggle(`no-${kind}`, !shown.kinds.has(kind));
}

function listFacts(page) {
  const facts = [["reference", page.reference], ["answer", page.answer], ["ended", page.end_reason], ["flags", page.flags], ["prompt", page.prompt], ["metadata", page.metadata], ["info", {...page.info, prompt: undefined}], ["sampling", page.run_config]];
  return facts.filter(([, value]) => value !== null && showJson(value) !== "{}" && showJson(value) !== "[]").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, showText(showJson(value), "small"))]);
}

// All that the model reads before its first reply, of a task that nobody has played.
function showPrompt({prompt, prompt_tokens: count}) {
  return prompt ? h("details", {class: "prompt"}, h("summary", {}, `what the model reads${count ? `, ${showJson(count)} tokens` : ""}`), showText(showJson(prompt))) : null;
}

function showEpisode(page, set) {
  const problems = (page.problems ?? []).map((one) => t(`left out: ${one}`, "p"));
  problems.forEach((one) => one.classList.add("problem"));
  return [showControls(), h("div", {class: "split"},
    h("div", {class: "turns"}, problems, page.system_prompt ? h("details", {}, h("summary", {}, "system prompt"), showText(page.system_prompt)) : null, showPrompt(page.info), showTurns(page, set)),
    h("aside", {"aria-label": "outcome"}, showScores(page), showLooks(page.looks), h("dl", {}, listFacts(page)), showTokens(page.tokens)))];
}
