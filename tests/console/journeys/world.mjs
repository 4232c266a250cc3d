// The page that a journey looks at, what it may ask for beside it, and what must not go wrong meanwhile.
import path from "node:path";

const PATIENCE = 60_000;

export class World {
  constructor(browser, given, outside) {
    this.browser = browser;
    this.given = given;
    this.outside = outside;
    this.runs = given.runs;
    this.url = given.url;
    this.problems = [];
    this.contexts = [];
    this.measured = []; // for people: no journey compares times
  }

  /** A page, logged in with the token of a role; what goes wrong in it fails the journey. */
  async page(address = "#/runs", { role = "admin", width = 1440, height = 900, dark = false, zone = "UTC", may = [] } = {}) {
    const context = await this.browser.newContext({
      viewport: { width, height },
      colorScheme: dark ? "dark" : "light",
      timezoneId: zone,
      reducedMotion: "reduce",
      permissions: [],
    });
    this.contexts.push(context);
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    page.seen = [];
    page.refused = 0; // by a server that is busy: these are asked again
    page.on("response", (response) => (page.refused += [429, 503].includes(response.status()) ? 1 : 0));
    page.received = 0; // bytes of bodies
    page.on("requestfinished", (request) => {
      request.sizes().then((sizes) => (page.received += sizes.responseBodySize), () => undefined);
    });
    page.on("request", (request) => page.seen.push(request.url()));
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(this.url) && !/^(blob|data):/.test(url)) this.problems.push(`asked ${url}`);
    });
    page.on("pageerror", (error) => this.problems.push(`page error: ${error}`));
    page.on("dialog", (dialog) => {
      this.problems.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("console", (message) => {
      const text = message.text();
      if (message.type() === "error" && !may.some((words) => text.includes(words))) this.problems.push(`console: ${text}`);
    });
    if (role) await page.request.post(`${this.url}/session`, { data: { token: this.given.tokens[role] } });
    if (address !== null) await page.goto(`${this.url}/${address}`);
    return page;
  }

  /** A request with the admin's token, beside the page. */
  async api(method, address, body) {
    const answer = await fetch(`${this.url}${address}`, {
      method,
      headers: { Authorization: `Bearer ${this.given.tokens.admin}`, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${address}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** What only the test outside can do. */
  async ask(verb) {
    return this.outside.ask(verb);
  }

  /** Nothing serious or critical for those who do not see, or use keys. */
  async checkAccess(page) {
    await page.evaluate(this.outside.axe);
    const found = await page.evaluate(async () => {
      // A graph is zoomed until its buttons are as large as one likes.
      const isZoomed = (rule, node) => rule === "target-size" && document.querySelector(node.target[0])?.closest(".react-flow");
      const { violations } = await globalThis.axe.run(document, {
        runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
      });
      return violations
        .filter((each) => each.impact === "serious" || each.impact === "critical")
        .map((each) => ({ ...each, nodes: each.nodes.filter((node) => !isZoomed(each.id, node)) }))
        .filter((each) => each.nodes.length > 0)
        .map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(" | ")}`);
    });
    if (found.length) throw new Error(`axe at ${page.url()}: ${found.join("; ")}`);
  }

  async picture(page, name) {
    if (this.given.pictures) await page.screenshot({ path: path.join(this.given.pictures, `${name}.png`) });
  }

  /** Of every size, dark and light, for those who look at them. */
  async pictures(page, name) {
    if (!this.given.pictures) return;
    for (const [width, height] of [[360, 740], [1440, 900], [2560, 1440]]) {
      await page.setViewportSize({ width, height });
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        await page.waitForTimeout(700); // drawn: nothing is compared
        await this.picture(page, `${name}-${width}-${colorScheme}`);
      }
    }
  }

  async close() {
    for (const context of this.contexts) await context.close();
  }
}

export function need(is, words) {
  if (!is) throw new Error(words);
}
