// Looks at the page of a file; see browser.mjs.

import { end, look, open, wrong } from "./browser.mjs";

await look("file", async (page, say) => {
  await page.getByText("late/0", { exact: true }).waitFor();
  await page.getByText("Live.", { exact: true }).waitFor();
  await page.locator("#dead tbody tr").first().waitFor();
  if (await page.locator("b").count()) say("a payload became a tag");
  if (!(await page.locator("td.metadata").getByText("<b>shop 3</b>", { exact: true }).count())) {
    say("metadata is not shown");
  }
  if (!(await page.getByText("y... (cut: it has 3,000 bytes)").count())) {
    say("a long payload is not said to be cut");
  }
  if (await page.locator("#databases, .database").filter({ visible: true }).count()) {
    say("it shows databases");
  }
});

// By keyboard, under the page's own policy.
const page = await open();
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
await end();
