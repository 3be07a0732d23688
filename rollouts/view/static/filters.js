// The conditions of `viewbox score --where`, on the columns of the table. `conditions.py` and `filters.py` define them.
"use strict";
const SHORT = {
  reward: ["scores.total", "scores.components"], reference: ["task.reference", "task.reference"], task: ["task.id", "task"],
  tool: ["tools_used", "tools_used"], step: ["info.step", "info.step"], sample: ["info.sample", "info.sample"],
};

function expandField(field) {
  const dot = field.indexOf("."), first = dot < 0 ? field : field.slice(0, dot);
  const paths = Object.hasOwn(SHORT, first) ? SHORT[first] : [first, first];
  return dot < 0 ? paths[0] : paths[1] + field.slice(dot);
}

function parseNumber(text) {
  return /^\s*[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(text) ? Number(text.replaceAll("_", "")) : null;
}

function formatValue(value) {
  return typeof value === "string" ? value : JSON.stringify(value === undefined ? null : value);
}

// {field, test}, or an Error that says what is wrong.
function parseCondition(text) {
  const form = /^\s*([^\s=!<>~]+)\s*(==|!=|>=|<=|=|>|<|~)\s*([^]*?)\s*$/.exec(text);
  if (form === null) throw new Error(`${text}: allowed is FIELD OP VALUE, with one of = != > >= < <= ~ (such as reward<0.5)`);
  const [, field, op, operand] = form;
  return {field: expandField(field), test: buildTest(op, operand)};
}

function buildTest(op, operand) {
  const any = (one) => (value) => (Array.isArray(value) && value.length ? value.some(one) : one(value));
  if (op === "~") {
    let search;
    try { search = new RegExp(operand, "i"); } catch { throw new Error(`${operand} is not a regular expression`); }
    return any((item) => search.test(formatValue(item)));
  }
  if (">=<=".includes(op) && op !== "=" && op !== "==") {
    const limit = parseNumber(operand);
    if (limit === null) throw new Error(`${op} compares numbers; given ${operand || "nothing"}`);
    const compare = {">": (a) => a > limit, ">=": (a) => a >= limit, "<": (a) => a < limit, "<=": (a) => a <= limit}[op];
    return any((item) => typeof item === "number" && compare(item));
  }
  const allowed = operand.split("|").map((text) => [text.trim(), parseNumber(text)]);
  const isEqual = any((item) => allowed.some(([text, number]) =>
    formatValue(item) === text || formatValue(item) === stripQuotes(text) ||
    (number !== null && typeof item === "number" && item === number)));
  return op === "!=" ? (value) => !isEqual(value) : isEqual;
}

function stripQuotes(text) {
  return text.length > 1 && text[0] === text.at(-1) && "'\"".includes(text[0]) ? text.slice(1, -1) : text;
}

// The numbers of the rows that meet all conditions (joined by " and ") and hold every word of the search.
function selectRows(columns, where, search) {
  const conditions = where.split(/\s+and\s+/i).filter((text) => text.trim()).map(parseCondition);
  const tests = conditions.map(({field, test}) => {
    if (!Object.hasOwn(columns, field)) {
      const near = Object.keys(columns).filter((name) => name.includes(field.split(".").at(-1)));
      const names = near.length ? near : Object.keys(columns);
      throw new Error(`no episode has ${field}; there are: ${names.slice(0, 12).join(", ")}`);
    }
    return [columns[field], test];
  });
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = Object.values(columns).filter((values) => words.length && values.some((one) => typeof one === "string"));
  const rows = [];
  for (let row = 0; row < columns.line.length; row++) {
    if (!tests.every(([values, test]) => test(values[row]))) continue;
    if (!words.every((word) => texts.some((values) => String(values[row] ?? "").toLowerCase().includes(word)))) continue;
    rows.push(row);
  }
  return rows;
}
