"use strict";
// Shows what the server says, and asks again every two seconds while somebody looks.

const one = (selector, where = document) => where.querySelector(selector);
const number = new Intl.NumberFormat("en");

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

async function ask(path, options) {
  const answer = await fetch(path, options);
  const said = await answer.json().catch(() => ({ error: `the server says ${answer.status}` }));
  if (!answer.ok) throw new Error(said.error);
  return said;
}

function count(rows, isAll) {
  return isAll ? number.format(rows) : `over ${number.format(rows)}`;
}

function lasting(milliseconds) {
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  const at = units.findIndex(([, size]) => size <= milliseconds);
  if (at < 0) return `${Math.max(0, Math.round(milliseconds))} ms`;
  const [unit, size] = units[at];
  const whole = Math.floor(milliseconds / size);
  const rest = units[at + 1] && Math.floor((milliseconds % size) / units[at + 1][1]);
  return rest ? `${whole} ${unit} ${rest} ${units[at + 1][0]}` : `${whole} ${unit}`;
}

function say(where, text, isWrong = false) {
  if (where.textContent !== text) where.textContent = text;
  where.classList.toggle("wrong", isWrong);
}

function show(state) {
  // Before the lists are asked for, which have these columns too.
  for (const head of document.querySelectorAll("#dead .acts, #dead .choose")) head.hidden = !state.changes;
  for (const head of document.querySelectorAll("thead .database, #databases")) head.hidden = !state.databases;
  one("#place").textContent = state.place;
  document.title = `Durable timers: ${state.place}`;
  const status = one("#status");
  const troubles = state.databases ? ofAll(state.databases) : ofOne(state);
  if (troubles.length) say(status, troubles.join(" "), true);
  else say(status, state.changes ? "Live." : "Live, read only.");
  if (state.databases) showDatabases(state);
  if (!state.bands) return;
  const overdue = state.bands[0];
  const figures = [
    ["Pending", count(state.pending, state.is_all)],
    ["Overdue", count(overdue.rows, overdue.is_all), overdue.rows > 0],
  ];
  // The first may be done since they were counted.
  const first = state.first_ms ?? state.now_ms;
  if (overdue.rows) figures.push(["Late by", lasting(state.now_ms - first), true]);
  else if (state.pending) figures.push(["Next in", lasting(first - state.now_ms)]);
  if (state.put_per_second !== undefined) {
    figures.push(["Put per second", number.format(Math.round(state.put_per_second))]);
    figures.push(["Done or cancelled per second", number.format(Math.round(state.left_per_second))]);
  }
  if (state.limit) figures.push(["Limit", state.limit]);
  if (state.workers) figures.push(["Workers", number.format(state.workers.length)]);
  one("#figures").replaceChildren(...figures.map(([name, figure, isLate]) => {
    const both = element("div");
    both.append(element("dt", name), element("dd", figure, isLate ? { class: "late" } : {}));
    return both;
  }));
  const most = Math.max(1, ...state.bands.map((band) => band.rows));
  one("#when tbody").replaceChildren(...state.bands.map((band) => {
    const row = element("tr", undefined, { class: band.name });
    const bar = element("td", undefined, { class: "bar" });
    if (band.rows) {
      const length = element("span");
      length.style.width = `${(100 * band.rows) / most}%`;
      bar.append(length);
    }
    row.append(element("th", band.name, { scope: "row" }));
    row.append(element("td", count(band.rows, band.is_all), { class: "count" }), bar);
    return row;
  }));
  one("#workers").hidden = !state.workers;
  if (state.workers) {
    const free = state.free_partitions;
    say(one("#free"), free ? `${free} partitions have no worker: what is due in them waits.` : "Each partition has a worker.", free > 0);
    one("#workers tbody").replaceChildren(...state.workers.map((worker) => cells({
      ...of(worker), Worker: worker.number, Partitions: worker.owned, "Lease runs out in": lasting(worker.lease_left_ms),
    })));
  }
}

// What is wrong with a file or a database, and with several databases.
function ofOne(state) {
  if (state.error) return [`Not read: ${state.error}`];
  return state.is_paused ? ["Paused: nothing is handed out until it is resumed."] : [];
}

function ofAll(databases) {
  const are = (some, one, several) => `${some.length} of ${databases.length} databases ${some.length === 1 ? one : several}`;
  const silent = databases.filter((database) => database.error);
  const paused = databases.filter((database) => database.is_paused && !database.error);
  const told = [];
  if (silent.length === databases.length) told.push("No database answers: what is shown was seen before.");
  else if (silent.length) told.push(`${are(silent, "does", "do")} not answer: these figures are the others'.`);
  if (paused.length) told.push(`${are(paused, "is", "are")} paused: nothing is handed out there until it is resumed.`);
  return told;
}

function showDatabases(state) {
  const silent = state.databases.filter((database) => database.error);
  const errors = silent.map((database) => `${short(database.place)}: ${database.error}.`);
  say(one("#faults"), [...errors, ...(state.faults ?? []).map((fault) => `${fault}.`)].join("\n"), true);
  const late = (text, isLate) => element("span", text, isLate ? { class: "late" } : {});
  one("#databases tbody").replaceChildren(...state.databases.map((database) => {
    const isSeen = database.pending !== undefined;
    const shown = (figure) => (isSeen ? figure : "unknown");
    const seen = isSeen ? `, seen ${lasting(database.age_ms)} ago` : "";
    return cells({
      Database: short(database.place),
      State: database.error ? late(`No answer${seen}`, true)
        : database.is_paused ? late("Paused", true) : "Live",
      Partitions: [database.partitions ?? "unknown", moving(database.leaving, "leaving"), moving(database.coming, "coming")].filter(Boolean).join("; "),
      Pending: shown(count(database.pending, database.is_all)),
      Overdue: late(shown(count(database.overdue, database.is_all_overdue)), database.overdue > 0),
      "Late by": late(database.overdue ? lasting(database.late_ms ?? 0) : shown("-"), database.overdue > 0),
      Limit: shown(database.limit ?? "none"),
      Workers: shown(database.workers),
    });
  }));
}

// The database of a row, where there are several.
function of(row) {
  return row.database ? { Database: short(row.database) } : {};
}

function short(place) {
  return place.replace(/^postgres(ql)?:\/\//, "");
}

function moving(partitions, way) {
  return partitions?.length ? `${partitions.length} ${way}` : "";
}

function cells(values) {
  const row = element("tr");
  for (const [head, value] of Object.entries(values)) {
    const cell = element("td", undefined, { "data-head": head, class: head.toLowerCase().replaceAll(" ", "-") });
    if (value !== undefined) cell.append(value instanceof Node ? value : element("span", value));
    row.append(cell);
  }
  return row;
}

function payload(row) {
  const cut = row.payload_bytes ? `... (cut: it has ${number.format(row.payload_bytes)} bytes)` : "";
  return row.payload_hex ? `${row.payload_hex}${cut} (hexadecimal)` : row.payload + cut;
}

const lists = {
  pending: (row) => cells({
    Name: row.name, Due: row.overdue ? element("span", `${row.deadline}, overdue`, { class: "late" }) : row.deadline,
    Attempt: row.attempt, Payload: payload(row), Metadata: row.metadata, ...of(row),
  }),
  dead: (row) => {
    const shown = cells({ Name: row.name, Died: row.died, Attempts: row.attempts, Payload: payload(row), Metadata: row.metadata, ...of(row) });
    if (!one("#dead .choose").hidden) {
      const choose = element("td", undefined, { "data-head": "Choose" });
      const letter = JSON.stringify([row.number ?? 0, row.name, row.died_ms]);
      choose.append(element("input", undefined, { type: "checkbox", value: letter, "aria-label": `Choose ${row.name}` }));
      shown.prepend(choose);
    }
    return shown;
  },
};

// How often each list was asked for.
const asked = { pending: 0, dead: 0 };

async function list(kind, next) {
  const where = one(`#${kind}`);
  const told = one(".told", where);
  const prefix = next?.prefix ?? one("input[name=prefix]", where).value;
  const turn = ++asked[kind];
  try {
    const page = await ask(`/${kind}?${new URLSearchParams({ ...next, prefix })}`);
    // Another look began since.
    if (turn < asked[kind]) return;
    const rows = page.rows.map(lists[kind]);
    if (next) one("tbody", where).append(...rows);
    else one("tbody", where).replaceChildren(...rows);
    const more = one(".more", where);
    more.hidden = !page.next;
    more.onclick = () => list(kind, { ...page.next, prefix });
    const isNone = !one("tbody", where).childElementCount;
    if (page.unread.length) say(told, `Not all. Not read: ${page.unread.join("; ")}.`, true);
    else say(told, isNone ? (page.next ? "None among those that were looked at so far." : "None.") : "");
  } catch (error) {
    say(told, `Not read: ${error.message}`, true);
  }
}

async function act(kind) {
  const where = one("#dead");
  const letters = [...where.querySelectorAll("tbody input:checked")].map((input) => JSON.parse(input.value));
  const told = one(".told", where);
  if (!letters.length) return say(told, "None is chosen.", true);
  if (kind === "drop" && !confirm(`Drop ${letters.length} dead letters for good?`)) return;
  try {
    const all = [];
    for (const database of new Set(letters.map(([database]) => database))) {
      const some = letters.filter((letter) => letter[0] === database);
      for (let at = 0; at < some.length; at += 100) {
        const body = JSON.stringify(some.slice(at, at + 100).map(([, ...letter]) => letter));
        all.push(...await ask(`/dead/${kind}?database=${database}`, { method: "POST", body, headers: { "Content-Type": "application/json" } }));
      }
    }
    await list("dead");
    say(told, all.map((one) => `${one.name}: ${one.error ?? one.told}.`).join(" "), all.some((one) => one.error));
    await list("pending");
  } catch (error) {
    say(told, `Not done, or not all: ${error.message}`, true);
  }
}

for (const kind of Object.keys(lists)) {
  one(`#${kind} form`).addEventListener("submit", (event) => {
    event.preventDefault();
    list(kind);
  });
}
for (const button of document.querySelectorAll("[data-act]")) {
  button.addEventListener("click", () => act(button.dataset.act));
}

async function watch() {
  if (!document.hidden) {
    try {
      // A database that does not answer holds it up for longer.
      show(await ask("/state", { signal: AbortSignal.timeout(10000) }));
    } catch (error) {
      say(one("#status"), `No answer from the server: ${error.message}`, true);
    }
  }
  setTimeout(watch, 2000);
}
watch().then(() => Object.keys(lists).forEach((kind) => list(kind)));
