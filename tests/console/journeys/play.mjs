// Plays the journeys of the console in one browser, against the server that is named on the first line of stdin.
// A journey is `{ name, play(world) }`. Each line of stdout is one JSON object: what became of one, or a request
// ({"ask": …}) that is answered by a line on stdin.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";
import { need, World } from "./world.mjs";

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const nextLine = async () => JSON.parse((await lines.next()).value);
const given = await nextLine();
const require = createRequire(path.join(given.console, "package.json"));
const { chromium } = require("playwright-core");
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

const outside = {
  axe: AXE,
  async ask(verb) {
    say({ ask: verb });
    return nextLine();
  },
};

const browser = await chromium.launch({
  executablePath: given.chromium,
  timeout: 180_000,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
try {
  for (const file of given.files) {
    const { default: journeys } = await import(pathToFileURL(file));
    for (const journey of journeys) {
      if (given.only && !journey.name.includes(given.only)) continue;
      const world = new World(browser, given, outside);
      const began = Date.now();
      let error = "";
      try {
        await journey.play(world, given);
        need(world.problems.length === 0, world.problems.join("\n"));
      } catch (problem) {
        error = String(problem?.stack ?? problem).slice(0, 3000);
        const page = world.contexts.at(-1)?.pages()[0];
        if (page) {
          error += `\nat ${page.url()}\n${world.problems.join("\n")}`;
          await world.picture(page, `failed-${journey.name.replace(/\W+/g, "-")}`).catch(() => undefined);
        }
      }
      await world.close().catch(() => undefined);
      say({ journey: journey.name, error, seconds: (Date.now() - began) / 1000, measured: world.measured });
    }
  }
} finally {
  await browser.close();
}
process.exit(0);
