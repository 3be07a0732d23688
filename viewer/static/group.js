// The page of a group: the episodes of one task side by side. Replies that all have in common are folded; in the first one
// that differs the common beginning is dim and the rest is marked.
function writePart(part) {
  return part.type === "call" ? `${part.name} ${showArguments(part.arguments)}`.trim() : part.text ?? part.error ?? "";
}

// What a turn says and shows, without the ids that every episode has for itself.
function writeTurn(page, turn) {
  const parts = turn.parts.map((part) => [part.type, part.name, writePart(part), part.error, page.pictures[part.picture]?.hash]);
  return JSON.stringify([turn.role, parts]);
}

function isReply(turn) { return turn.role === "assistant"; }

// How many items all these lists begin with; `items` may be texts.
function countCommon(lists) {
  let count = 0;
  while (lists.every((one) => count < one.length && one[count] === lists[0][count])) count++;
  return count;
}

// Where the episodes part: the number of common turns and replies, and of each part of the next reply its common characters.
function findParting(pages) {
  const turns = countCommon(pages.map((page) => page.turns.map((turn) => writeTurn(page, turn))));
  const replies = pages.map((page) => page.turns.filter(isReply));
  const same = countCommon(replies.map((some, n) => some.map((turn) => writeTurn(pages[n], turn))));
  const next = replies.filter((some) => same < some.length).map((some) => some[same].parts.map((part) => [part.type, writePart(part)]));
  const common = [];
  for (let n = 0; next.length === pages.length && next.every((parts) => parts[n]?.[0] === next[0][n]?.[0]) && n < next[0].length; n++) {
    const texts = next.map((parts) => parts[n][1]);
    common.push(countCommon(texts));
    if (texts.some((text) => text !== texts[0])) break;
  }
  return {turns, same, most: Math.max(0, ...replies.map((some) => some.length)), common};
}

// A part of the reply that differs: dim as far as it is common, the rest marked.
function showDifference(part, common) {
  const text = writePart(part), cut = common && /[\ud800-\udbff]/.test(text[common - 1]) ? common - 1 : common;
  const rest = makeVisible(text.slice(cut, cut + LONG));
  const block = h("pre", {class: "t text"}, cut ? h("span", {class: "common"}, makeVisible(text.slice(0, cut))) : null, rest ? h("mark", {}, rest) : null,
    text.length > cut + LONG ? ` … ${(text.length - cut - LONG).toLocaleString("en")} more characters` : null);
  if (part.type === "thinking") return h("details", {class: "thinking", open: cut < text.length}, h("summary", {}, `thinking (${text.length} characters)`), block);
  return part.type === "call" ? h("div", {class: "call"}, block) : block;
}

function showColumn(page, set, parting) {
  const first = page.turns.findIndex(isReply), differs = page.turns.filter(isReply)[parting.same];
  const sections = showTurns(page, set, (turn, n) => (parting.most > parting.same && turn === differs
    ? turn.parts.map((part, number) => showDifference(part, parting.common[number] ?? 0))
    : turn.parts.flatMap((part) => showPart(page, part, set, n === 0))));
  const folded = first < 0 || parting.same === parting.most ? [] : sections.slice(first, parting.turns);
  if (!folded.length) return sections;
  const count = page.turns.slice(first, parting.turns).filter(isReply).length;
  const title = count === 1 ? "reply 1: the same in all" : `replies 1 to ${count}: the same in all`;
  return [...sections.slice(0, first), h("details", {class: "common"}, h("summary", {}, title), folded), ...sections.slice(parting.turns)];
}

function showGroup(pages, set, link) {
  const parting = pages.length > 1 ? findParting(pages) : {turns: 0, same: 0, most: 0, common: []}, {same, most} = parting;
  const says = same === most ? "All replies are the same." : same === 0 ? "They part at the first reply."
    : `${same === 1 ? "The first reply is" : `The first ${same} replies are`} the same; they part at reply ${same + 1}.`;
  return [h("p", {}, `${pages.length} ${pages.length === 1 ? "episode" : "episodes"} of this task in this step. ${pages.length > 1 ? says : ""}`), showControls(), h("div", {class: "group"}, pages.map((page) => h("article", {},
    h("h3", {}, h("a", {href: link(page.line)}, `#${page.line}`), page.scores ? ` reward ${formatNumber(page.scores.total)}` : ""),
    h("p", {}, `advantage ${[page.info?.advantage].flat().map(formatNumber).join(", ")}, ${page.end_reason}${page.run_config?.model_name ? `, ${makeVisible(page.run_config.model_name)}` : ""}`), showText(page.answer === null ? "no answer" : `answer: ${showJson(page.answer)}`, "small"), showColumn(page, set, parting))))];
}
