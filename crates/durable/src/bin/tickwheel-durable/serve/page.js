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
  one("#place").textContent = state.place;
  document.title = `Durable timers: ${state.place}`;
  const status = one("#status");
  if (state.error) say(status, `Not read: ${state.error}`, true);
  else if (state.is_paused) say(status, "Paused: nothing is handed out until it is resumed.", true);
  else say(status, state.changes ? "Live." : "Live, read only.");
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
      Worker: worker.number, Partitions: worker.owned, "Lease runs out in": lasting(worker.lease_left_ms),
    })));
  }
  for (const hidden of document.querySelectorAll("#dead .acts, #dead .choose")) hidden.hidden = !state.changes;
}

function cells(values) {
  const row = element("tr");
  for (const [head, value] of Object.entries(values)) {
    const cell = element("td", undefined, { "data-head": head, class: head.toLowerCase() });
    cell.append(value instanceof Node ? value : element("span", value));
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
    Attempt: row.attempt, Payload: payload(row),
  }),
  dead: (row) => {
    const shown = cells({ Name: row.name, Died: row.died, Attempts: row.attempts, Payload: payload(row) });
    if (!one("#dead .choose").hidden) {
      const choose = element("td", undefined, { "data-head": "Choose" });
      const letter = JSON.stringify([row.name, row.died_ms]);
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
    say(told, isNone ? (page.next ? "None among those that were looked at so far." : "None.") : "");
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
    for (let at = 0; at < letters.length; at += 100) {
      const body = JSON.stringify(letters.slice(at, at + 100));
      all.push(...await ask(`/dead/${kind}`, { method: "POST", body, headers: { "Content-Type": "application/json" } }));
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
