// Opens the page of `tickwheel-durable serve` in a browser, and prints what is wrong with it.
//
//   node SCRIPT CHROMIUM URL FOLDER
//
// Writes screenshots into FOLDER. Ends with exit code 1 if anything is wrong.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [executablePath, url, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");

export const wrong = [];
export const browser = await chromium.launch({
  executablePath,
  args: [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
});

// Opens the page on screens of three widths, light and dark, and looks at each with `check`.
export async function look(name, check) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [360, 768, 1440]) {
      const where = `${name}, ${width} pixels, ${colorScheme}`;
      const say = (what) => wrong.push(`${where}: ${what}`);
      // The checker is a script of its own.
      const viewport = { width, height: 900 };
      const page = await open(say, { viewport, colorScheme, bypassCSP: true });
      await check(page, say);
      const file = `${folder}/${name}-${width}-${colorScheme}`;
      await page.screenshot({ path: `${file}.png` });
      await page.screenshot({ path: `${file}-all.png`, fullPage: true });
      if (await page.evaluate(() => innerWidth < document.documentElement.scrollWidth)) {
        say("it is wider than the screen");
      }
      await page.evaluate(axe);
      const found = await page.evaluate(() => globalThis.axe.run());
      for (const { id, nodes } of found.violations) {
        say(`${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
      }
      await page.context().close();
    }
  }
}

// Opens the page, under its own policy if nothing else is asked for.
export async function open(say = (what) => wrong.push(what), options = {}) {
  const page = await (await browser.newContext(options)).newPage();
  page.setDefaultTimeout(300_000);
  page.on("console", (message) => message.type() === "error" && say(message.text()));
  page.on("pageerror", (error) => say(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) {
      say(`asks for ${request.url()}`);
    }
  });
  await page.goto(url);
  return page;
}

export async function end() {
  await browser.close();
  if (0 < wrong.length) console.error(wrong.join("\n"));
  process.exit(0 < wrong.length ? 1 : 0);
}
