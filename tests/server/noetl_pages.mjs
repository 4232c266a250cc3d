// Uses NoETL's own pages in a browser, as a person would; stdin has one line: {console, chromium, url}.
// Prints one JSON object: what the browser complained about, and requests that were refused.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const given = JSON.parse(fs.readFileSync(0, "utf8"));
const { chromium } = createRequire(path.join(given.console, "package.json"))("playwright-core");
const browser = await chromium.launch({
  executablePath: given.chromium,
  timeout: 180_000,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const told = { problems: [], refused: [], calls: [] };
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1100 } });
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (error) => told.problems.push(String(error)));
  page.on("response", (response) => {
    const place = new URL(response.url()).pathname;
    if (!place.startsWith("/api/")) return;
    told.calls.push(`${response.request().method()} ${place}`);
    if (response.status() >= 400) told.refused.push(`${response.request().method()} ${place} ${response.status()}`);
  });
  const press = (name) => page.getByRole("button", { name }).first().click();

  await page.goto(given.url);
  await press("Continue without Authentication");
  await press("Execute");
  await page.waitForURL(/\/execution\/./);
  await page.getByText("RUNNING").first().waitFor();
  await press("Cancel");
  await page.getByText("CANCELLED").first().waitFor();

  await page.goto(`${given.url}/catalog`);
  await page.getByRole("button", { name: /Run$/ }).first().click();
  const started = page.waitForResponse((response) => response.url().endsWith("/api/execute"));
  await page.getByRole("dialog").getByRole("button", { name: "Run" }).click();
  await started;
  await page.goto(`${given.url}/execution`);
  const stopped = page.waitForResponse((response) => response.url().endsWith("/stop"));
  await press("Stop");
  await stopped;

  const id = "examples/hello";
  await page.goto(`${given.url}/editor?id=${encodeURIComponent(id)}`);
  const valid = page.waitForResponse((response) => response.url().endsWith("/validate"));
  await press("Validate");
  told.valid = (await (await valid).json()).valid;
  const saved = page.waitForResponse((response) => response.request().method() === "PUT");
  await press("Save");
  told.saved = (await (await saved).json()).status;
  await page.goto(`${given.url}/credentials`);
  await page.getByText("partner").first().waitFor();
} catch (error) {
  told.problems.push(String(error?.stack ?? error).slice(0, 2000));
} finally {
  await browser.close();
}
process.stdout.write(JSON.stringify(told));
