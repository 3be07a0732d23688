// Where the page gets its data: from blocks inside the file, or from the server that served it.
const SERVED = document.getElementById("served") !== null;
const BATCH = 50;

function readBlock(id) {
  const block = document.getElementById(id);
  return block === null ? null : JSON.parse(block.textContent);
}

async function askServer(path) {
  const reply = await fetch(path, {cache: "no-store"});
  const value = await reply.json();
  if (!reply.ok) throw new Error(value.error ?? `the server said ${reply.status}`);
  return value;
}

const data = {
  sets: [], tables: new Map(), texts: {},

  async loadSets() {
    this.sets = SERVED ? await askServer("sets") : readBlock("sets");
    return this.sets;
  },

  // The table of a set: {columns, skipped, unreadable}. With `fresh`, rows that were appended since are added.
  async loadTable(set, fresh = false) {
    const known = this.tables.get(set);
    if (known && !(fresh && SERVED)) return known;
    const start = known ? known.columns.line.length : 0;
    const more = SERVED ? await askServer(`rows/${set}?start=${start}`) : readBlock(`rows-${set}`);
    if (!known) {
      this.tables.set(set, more);
      return more;
    }
    const added = more.columns.line.length;
    for (const name of Object.keys(more.columns)) {
      known.columns[name] ??= new Array(start).fill(null);
      for (const value of more.columns[name]) known.columns[name].push(value);
    }
    Object.assign(known, {skipped: more.skipped, unreadable: more.unreadable, added});
    return known;
  },

  // The numbers of the rows that meet all conditions.
  async select(set, conditions) {
    const {line} = this.tables.get(set).columns;
    if (!conditions.length) return line.map((_, row) => row);
    if (!SERVED) return selectTexts(this.texts[set] ??= readBlock(`fields-${set}`), conditions);
    const found = new Set(await askServer(`select/${set}?${new URLSearchParams(conditions.map((one) => ["where", one]))}`));
    return line.map((_, row) => row).filter((row) => found.has(line[row]));
  },

  async loadEpisode(set, line) {
    if (SERVED) return askServer(`episode/${set}/${line}`);
    const row = this.tables.get(set).columns.line.indexOf(line);
    const block = row < 0 ? null : readBlock(`episodes-${set}-${Math.floor(row / BATCH)}`);
    if (!block || !block[line]) throw new Error(`there is no episode in line ${line}`);
    return block[line];
  },

  // The address of a picture, or null.
  getPicture(set, line, hash) {
    if (!/^[0-9a-zA-Z]{1,128}$/.test(hash ?? "")) return null;
    if (SERVED) return `image/${set}/${line}/${hash}.png`;
    const bytes = readBlock(`image-${hash}`);
    return bytes === null ? null : `data:image/png;base64,${bytes}`;
  },

  async compare(a, b) {
    const found = SERVED ? await askServer(`compare/${a}/${b}`) : readBlock(`compare-${a}-${b}`);
    return found ?? {error: "this file does not compare these two; viewbox compare does"};
  },
};
