// Opens the page of `tickwheel report` in a browser, and prints what is wrong with it.
//
//   node check.mjs CHROMIUM PAGE FOLDER CHART...
//
// Writes screenshots into FOLDER. Ends with exit code 1 if anything is wrong.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, file, folder, ...charts] = process.argv.slice(2);
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
    const viewport = { width, height: 900 };
    // The page forbids scripts; the checker is one.
    const context = await browser.newContext({ viewport, colorScheme, bypassCSP: true });
    const page = await context.newPage();
    page.on("console", (message) => message.type() === "error" && say(message.text()));
    page.on("pageerror", (error) => say(error));
    page.on("request", (request) => {
      if (!/^(file|data):/.test(request.url())) say(`asks for ${request.url()}`);
    });
    await page.goto(pathToFileURL(file).href);
    await page.screenshot({ path: `${folder}/${width}-${colorScheme}.png`, fullPage: true });
    for (const found of await page.evaluate(look, charts)) say(found);
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run());
    for (const { id, nodes } of found.violations) {
      say(`${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
    }
    // The numbers of each chart open by keyboard.
    const summaries = page.locator("figure summary");
    for (let number = 0; number < (await summaries.count()); number++) {
      await summaries.nth(number).focus();
      await page.keyboard.press("Enter");
      const table = page.locator("figure details table").nth(number);
      if (!(await table.isVisible())) say(`the numbers of chart ${number} do not open`);
    }
    const opened = await page.evaluate(() => globalThis.axe.run());
    for (const { id } of opened.violations) say(`${id}, with the numbers open`);
    if (await page.evaluate(() => innerWidth < document.documentElement.scrollWidth)) {
      say("the page is wider than the screen with the numbers open");
    }
    await context.close();
  }
}
const page = await browser.newPage();
await page.goto(pathToFileURL(file).href);
await page.pdf({ path: `${folder}/print.pdf`, format: "A4" });
await page.setViewportSize({ width: 794, height: 1123 });
await page.emulateMedia({ media: "print", colorScheme: "dark" });
await page.screenshot({ path: `${folder}/print.png`, fullPage: true });
const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
if (paper !== "rgb(255, 255, 255)") wrong.push(`print: on ${paper}`);
await browser.close();
if (0 < wrong.length) {
  console.error(wrong.join("\n"));
  process.exit(1);
}

// Runs in the page: looks at each chart and at each text.
function look(charts) {
  const found = [];
  const all = [...document.querySelectorAll("figure")];
  const ids = all.map((figure) => figure.id).join(" ");
  if (ids !== charts.join(" ")) found.push(`has the charts ${ids}`);
  if (innerWidth < document.documentElement.scrollWidth) found.push("is wider than the screen");

  const luminance = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map((part) => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const paper = getComputedStyle(document.body).backgroundColor;

  for (const figure of all) {
    const say = (what) => found.push(`${figure.id}: ${what}`);
    const svg = figure.querySelector(":scope > svg");
    const names = svg.getAttribute("aria-labelledby").split(" ");
    const texts = names.map((name) => document.getElementById(name)?.textContent);
    if (svg.getAttribute("role") !== "img" || texts.length !== 2 || !texts.every(Boolean)) {
      say("has no title or no description");
    }
    if (figure.querySelectorAll("details table tbody tr").length === 0) say("has no numbers");
    const shapes = [...svg.querySelectorAll("path[class^=s], rect, .line")];
    const area = (shape) => {
      const { width, height } = shape.getBoundingClientRect();
      return Math.max(width, height);
    };
    if (!shapes.some((shape) => 3 < area(shape))) say("shows nothing");
    for (const shape of shapes) {
      const style = getComputedStyle(shape);
      const color = style.fill === "none" ? style.stroke : style.fill;
      if (contrast(color, paper) < 3) say(`${color} on ${paper}`);
    }
    const labels = [...svg.querySelectorAll("text")];
    const boxes = labels.map((label) => label.getBoundingClientRect());
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    labels.forEach((label, number) => {
      const style = getComputedStyle(label);
      const box = boxes[number];
      if (parseFloat(style.fontSize) * scale < 11.5) say(`"${label.textContent}" is small`);
      if (contrast(style.fill, paper) < 4.5) say(`"${label.textContent}" is pale`);
      if (box.left < -1 || innerWidth + 1 < box.right) say(`"${label.textContent}" is cut`);
      boxes.slice(0, number).forEach((other, earlier) => {
        const overlaps =
          box.left < other.right && other.left < box.right &&
          box.top + 3 < other.bottom && other.top + 3 < box.bottom;
        if (overlaps) say(`"${label.textContent}" is on "${labels[earlier].textContent}"`);
      });
    });
  }
  return found;
}
