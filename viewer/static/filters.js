// The conditions of `viewbox score --where`: `conditions.py` and `filters.py` define them. A server decides them itself; in a
// file they are decided here, on the JSON of each episode, whose text is kept because 1.0 is not written as 1.
"use strict";
const FIELDS = JSON.parse(document.getElementById("fields").textContent), FORM = /^\s*([^\s=!<>~]+)\s*(==|!=|>=|<=|=|>|<|~)\s*([^]*?)\s*$/;

function expandField(field) {
  const dot = field.indexOf("."), first = dot < 0 ? field : field.slice(0, dot);
  const paths = Object.hasOwn(FIELDS.short, first) ? FIELDS.short[first] : [first, first];
  return dot < 0 ? paths[0] : paths[1] + field.slice(dot);
}

function parseNumber(text) {
  const plain = /^\s*[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*$/.test(text) ? text.replaceAll(",", "") : text;
  return /^\s*[+-]?(?!0\d)(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?\s*$/i.test(plain) ? Number(plain) : null;
}

// What two equal names have in common: 7, 7.0 and the text 7 are one, so are true and TRUE, but not 1.1 and 1.10.
function identify(text) {
  const name = text.normalize("NFC").trim().split(/\s+/).join(" "), number = String(Number(name));
  return /^(true|false)$/i.test(name) ? name.toLowerCase() : /^-?\d+\.0$/.test(name) && `${number}.0` === name ? number : name;
}

// The conditions that " and " joins. It stands in a value if it is quoted there, or if no field and operator follow.
function splitConditions(where) {
  const quoted = [...where.matchAll(/[=|~]\s*("[^"]*"|'[^']*')/g)].map((one) => [one.index, one.index + one[0].length]), parts = [];
  let start = 0;
  for (const one of where.matchAll(/\s+and\s+/gi)) {
    const next = FORM.exec(where.slice(one.index + one[0].length)), inside = quoted.some(([from, to]) => from < one.index && one.index < to);
    if (inside || next === null || !FIELDS.names.includes(next[1].split(".")[0])) continue;
    parts.push(where.slice(start, one.index));
    start = one.index + one[0].length;
  }
  return [...parts, where.slice(start)].filter((text) => text.trim());
}

function endOf(text, at) {
  const part = text[at] === "{" || text[at] === "[" ? /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}]/g : text[at] === '"' ? /"[^"\\]*(?:\\.[^"\\]*)*"/y : /[^,\]}]+/y;
  part.lastIndex = at;
  for (let depth = 0, found; (found = part.exec(text));) {
    if ("{[".includes(found[0])) depth++;
    else if ("}]".includes(found[0])) depth--;
    if (depth === 0) return part.lastIndex;
  }
  return text.length;
}

// The parts of an object or list, as [key or number, its JSON].
function listParts(text) {
  const parts = [];
  for (let at = 1; at < text.length - 1;) {
    let key = parts.length, end = endOf(text, at);
    if (text[0] === "{") { key = JSON.parse(text.slice(at, end)); at = end + 2; end = endOf(text, at); }
    parts.push([key, text.slice(at, end)]);
    at = end + 2;
  }
  return parts;
}

function findField(text, field) {
  while (field !== null) {
    if (text[0] !== "{" && text[0] !== "[") return "null";
    const parts = new Map(listParts(text).map(([key, part]) => [String(key), part])), dot = field.indexOf(".");
    if (parts.has(field)) return parts.get(field);
    text = dot < 0 ? "null" : parts.get(field.slice(0, dot)) ?? "null";
    field = dot < 0 ? null : field.slice(dot + 1);
  }
  return text;
}

function readItem(text) {
  const kind = text[0] === '"' ? "text" : /^-?\d/.test(text) ? "number" : "other";
  const plain = kind === "text" ? JSON.parse(text) : text, isNull = text === "null" || text === "NaN" || (kind === "text" && !plain.trim());
  return {text: plain, isNull, number: kind === "number" ? Number(text) : kind === "text" ? parseNumber(plain) : null, isNumber: kind === "number"};
}

// A regular expression of Python, as far as this language has the same.
function translatePattern(pattern) {
  const letters = {d: "\\p{Nd}", w: "[\\p{L}\\p{N}_]", D: "\\P{Nd}", W: "[^\\p{L}\\p{N}_]", A: "^", Z: "$", a: "\\x07"};
  const word = letters.w, edge = `(?:(?<=${word})(?!${word})|(?<!${word})(?=${word}))`;
  let inside = false;
  return pattern.replace(/\\([^])|\(\?P<|\(\?P=(\w+)\)|\{(?!\d*,?\d*\})|[.$[\]]/g, (all, letter, name) => {
    if (letter === "w" && inside) return "\\p{L}\\p{N}_";
    if (letter === "b" && !inside) return edge;
    if (letter !== undefined) return letters[letter] ?? (/[\w^$\\.*+?()[\]{}|/-]/.test(letter) ? (letter === "-" && !inside ? "-" : all) : letter);
    if (name) return `\\k<${name}>`;
    if (all === "(?P<") return "(?<";
    if (all === "{") return "\\{";
    if (all === "[" || all === "]") { const was = inside; inside = all === "[" || false; return was === inside ? `\\${all}` : all; }
    return inside ? all : all === "." ? "[^\\n]" : "(?=\\n?$)";
  });
}

function buildTest(op, operand) {
  const any = (one) => (value) => (value[0] === "[" && value !== "[]" ? listParts(value).map((part) => part[1]) : [value]).some((item) => one(readItem(item)));
  if (op === "~") {
    let search;
    try { search = new RegExp(translatePattern(operand), "iu"); } catch { throw new Error(`${operand} is not a regular expression, or one that only the command line can read`); }
    return any((item) => search.test(item.text));
  }
  if (">=<=".includes(op) && op !== "=" && op !== "==") {
    const limit = parseNumber(operand);
    if (limit === null) throw new Error(`${op} compares numbers; given ${operand || "nothing"}`);
    const compare = {">": (a) => a > limit, ">=": (a) => a >= limit, "<": (a) => a < limit, "<=": (a) => a <= limit}[op];
    return any((item) => item.number !== null && compare(item.number));
  }
  const texts = operand.split("|").map((text) => text.trim()), numbers = texts.map(parseNumber).filter((one) => one !== null);
  const written = new Set([...texts, ...texts.map(stripQuotes)]), names = new Set(texts.map((text) => identify(stripQuotes(text))));
  if (texts.includes("null")) names.add("");
  const isEqual = any((item) => item.isNull ? names.has("") :
    names.has(identify(item.text)) || written.has(item.text) || (item.isNumber && numbers.includes(item.number)));
  return op === "!=" ? (value) => !isEqual(value) : isEqual;
}

function stripQuotes(text) {
  return text.length > 1 && text[0] === text.at(-1) && "'\"".includes(text[0]) ? text.slice(1, -1) : text;
}

function parseCondition(text) {
  const form = FORM.exec(text);
  if (form === null) throw new Error(`${text}: allowed is FIELD OP VALUE, with one of = != > >= < <= ~ (such as reward<0.5)`);
  const [, given, op, operand] = form, field = expandField(given), [first, second] = field.split(".");
  for (const [name, allowed] of [[first, FIELDS.names], [second, FIELDS.inner[first]]]) {
    if (name && allowed && !allowed.includes(name)) throw new Error(`${text}: unknown field ${name}; allowed: ${allowed.join(", ")}`);
  }
  return {field, test: buildTest(op, operand)};
}

// The numbers of the episodes that meet all conditions.
function selectTexts(texts, where) {
  const conditions = where.map(parseCondition);
  return texts.map((_, row) => row).filter((row) => conditions.every(({field, test}) => test(findField(texts[row], field))));
}

// Of these rows, those that hold every word of the search.
function searchRows(rows, columns, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = Object.values(columns).filter((values) => words.length && values.some((one) => typeof one === "string"));
  return rows.filter((row) => words.every((word) => texts.some((values) => String(values[row] ?? "").toLowerCase().includes(word))));
}
