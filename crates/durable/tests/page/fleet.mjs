// Looks at the page of two databases, and asks whoever runs this to stop and start the second; see
// browser.mjs.

import { createInterface } from "node:readline";
import { end, look, open, wrong } from "./browser.mjs";

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function ask(what) {
  console.log(what);
  await answers.next();
}

// Looks again while one is taken for silent, as on a busy machine.
async function readAll(page) {
  while (await page.locator("#pending .told, #dead .told", { hasText: "Not all." }).count()) {
    await page.waitForTimeout(1000);
    for (const list of ["#dead", "#pending"]) await page.locator(`${list} form button`).click();
  }
}

const second = (page) => page.locator("#databases tbody tr").nth(1);

await look("fleet", async (page, say) => {
  await page.getByText("Live.", { exact: true }).waitFor();
  await page.locator("#pending tbody tr").first().waitFor();
  await readAll(page);
  await page.getByText("order 1", { exact: true }).waitFor();
  await page.locator("#dead tbody tr").nth(11).waitFor();
  for (const text of ["0-31", "32-63"]) {
    if (!(await page.locator("#databases td").getByText(text, { exact: true }).isVisible())) {
      say(`no database has the partitions ${text}`);
    }
  }
  if ((await page.locator("#pending td.name").first().textContent()) !== "late") {
    say("the first is not the one that is late");
  }
  const shown = await page.locator("#pending td.database").allTextContents();
  if (shown.length !== 100 || new Set(shown).size !== 2) say("the list is not that of both");
});

// By keyboard: a letter of each database.
const page = await open();
const letters = page.locator("#dead tbody tr");
await letters.first().waitFor();
await readAll(page);
await letters.nth(11).waitFor();
const names = await letters.evaluateAll((rows) => rows.map((row) =>
  [row.querySelector(".database").textContent, row.querySelector(".name").textContent]));
const chosen = [...new Map(names).values()];
if (chosen.length !== 2) wrong.push(`the letters are of ${chosen.length} databases`);
for (const name of chosen) {
  await page.getByLabel(`Choose ${name}`, { exact: true }).focus();
  await page.keyboard.press("Space");
}
await page.getByRole("button", { name: "Retry the chosen" }).focus();
await page.keyboard.press("Enter");
for (const name of chosen) {
  await page.locator("#dead .told", { hasText: `${name}: retried: it is due now.` }).waitFor();
}
if ((await letters.count()) !== 10) wrong.push("the letters are still there");

// While it is open.
const pending = await second(page).locator(".pending").textContent();
await ask("stop");
await second(page).getByText("No answer, seen ").waitFor();
await page.locator("#faults", { hasText: ": cannot " }).waitFor();
await page.getByText("1 of 2 databases does not answer: these figures are the others'.").waitFor();
await page.locator("#faults", { hasText: "partitions 32-63: gone to" }).waitFor();
if ((await second(page).locator(".pending").textContent()) !== pending) {
  wrong.push("what was seen last is gone");
}
await page.locator("#pending button").first().press("Enter");
await page.locator("#pending .told", { hasText: "Not all. Not read: " }).waitFor();
await look("down", async (page, say) => {
  await second(page).getByText("No answer, seen ").waitFor();
  await page.locator("#faults", { hasText: "partitions 32-63: gone to" }).waitFor();
  await page.locator("#pending tbody tr").first().waitFor();
  const shown = await page.locator("#pending td.database").allTextContents();
  if (new Set(shown).size !== 1) say("the list is not that of the other");
});
await ask("go");
await page.getByText("Live.", { exact: true }).waitFor();
await second(page).getByText("Live", { exact: true }).waitFor();
if (await page.locator("#faults").textContent()) wrong.push("a fault stays");
await end();
