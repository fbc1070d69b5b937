// Opens the page of `tickwheel-durable serve` in a browser, and prints what is wrong with it.
//
//   node check.mjs CHROMIUM URL FOLDER
//
// Writes screenshots into FOLDER. Ends with exit code 1 if anything is wrong.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [executablePath, url, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");
const wrong = [];

const browser = await chromium.launch({
  executablePath,
  args: [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
});
for (const colorScheme of ["light", "dark"]) {
  for (const width of [360, 768, 1440]) {
    const where = `${width} pixels, ${colorScheme}`;
    const say = (what) => wrong.push(`${where}: ${what}`);
    // The checker is a script of its own.
    const viewport = { width, height: 900 };
    const context = await browser.newContext({ viewport, colorScheme, bypassCSP: true });
    const page = await context.newPage();
    page.setDefaultTimeout(300_000);
    watch(page, say);
    await page.goto(url);
    await page.getByText("late/0", { exact: true }).waitFor();
    await page.getByText("Live.", { exact: true }).waitFor();
    await page.locator("#dead tbody tr").first().waitFor();
    await page.screenshot({ path: `${folder}/${width}-${colorScheme}.png` });
    await page.screenshot({ path: `${folder}/${width}-${colorScheme}-all.png`, fullPage: true });
    if (await page.evaluate(() => innerWidth < document.documentElement.scrollWidth)) {
      say("it is wider than the screen");
    }
    if (await page.locator("b").count()) say("a payload became a tag");
    if (!(await page.getByText("y... (cut: it has 3,000 bytes)").count())) {
      say("a long payload is not said to be cut");
    }
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run());
    for (const { id, nodes } of found.violations) {
      say(`${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
    }
    await context.close();
  }
}

// By keyboard, under the page's own policy.
const page = await browser.newPage();
page.setDefaultTimeout(300_000);
watch(page, (what) => wrong.push(what));
await page.goto(url);
await page.getByLabel("Choose dead 0").focus();
await page.keyboard.press("Space");
await page.getByRole("button", { name: "Retry the chosen" }).focus();
await page.keyboard.press("Enter");
await page.getByText("dead 0: retried: it is due now.").waitFor();
await page.locator("#pending td.name", { hasText: "dead 0" }).waitFor();
if ((await page.locator("#dead tbody tr").count()) !== 3) wrong.push("the letter is still there");
const prefix = page.locator("#pending input[name=prefix]");
await prefix.fill("soon");
await prefix.press("Enter");
await page.waitForFunction(() => document.querySelectorAll("#pending tbody tr").length === 2);
await prefix.fill("");
await prefix.press("Enter");
await page.waitForFunction(() => document.querySelectorAll("#pending tbody tr").length === 100);
// What is written and was not looked for is no matter, nor is a second click.
await prefix.fill("soon");
await page.locator("#pending .more").evaluate((more) => more.click() ?? more.click());
await page.waitForFunction(() => 200 <= document.querySelectorAll("#pending tbody tr").length);
// The first was done after it was counted.
await page.route("**/state", async (route) => {
  const state = await (await route.fetch()).json();
  await route.fulfill({ json: { ...state, first_ms: null } });
});
await page.locator("#figures dd", { hasText: /^0 ms$/ }).waitFor();
const shown = await page.locator("#pending td.name").allTextContents();
if (shown.length !== 200 || new Set(shown).size !== 200) wrong.push(`${shown.length} are shown`);
await browser.close();
if (0 < wrong.length) {
  console.error(wrong.join("\n"));
  process.exit(1);
}

function watch(page, say) {
  page.on("console", (message) => message.type() === "error" && say(message.text()));
  page.on("pageerror", (error) => say(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) {
      say(`asks for ${request.url()}`);
    }
  });
}
