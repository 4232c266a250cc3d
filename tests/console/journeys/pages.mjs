// The other pages: definitions, writing, the system, comparing, the first steps.
import { need } from "./world.mjs";

const story = (needs) => `apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: written}
spec:
  inputsSchema: {type: object, required: [who], properties: {who: {type: string}}}
  steps:
  - {name: greet, ref: echo, with: {text: "Hello, {{ inputs.who }}"}}
  - {name: shout, ref: echo, needs: [${needs}], with: {text: "{{ steps.greet.output.text | upper }}"}}
  output: {text: "{{ steps.shout.output.text }}"}
`;

const flow = {
  $schema: "https://mwl.dev/v0.1/flow/schema.json",
  parameters: {
    type: "object",
    required: ["who"],
    properties: { who: { type: "string" }, times: { type: "integer", default: 1 }, loud: { type: "boolean" } },
  },
  entrypoint: "greet",
  steps: {
    greet: {
      action: "Call",
      call: { provider: "mwl:provider.call/perdure/echo/v1", with: { value: "{{ 'Hello, ' + vars.who }}" } },
      next: "done",
    },
    done: { action: "Return" },
  },
};
const circle = `apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: circle, path: circle}
workflow:
- step: start
  next: {arcs: [{step: ask}]}
- step: ask
  tool: {kind: noop}
  next: {arcs: [{step: again}]}
- step: again
  tool: {kind: noop}
  next: {arcs: [{step: ask}]}
`;

/** Replace the text of the editor. Over a selection the browser would keep its style, which the policy forbids. */
async function type(page, words) {
  await page.getByTestId("editor").locator(".cm-content").click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.press("Delete");
  await page.keyboard.insertText(words);
}

export default [
  {
    name: "a Flow is written, named, saved and run with arguments that a form asks for (CON-005, CON-006)",
    async play(world) {
      const page = await world.page("#/write");
      await page.getByTestId("example-flow").click();
      await page.getByTestId("verdict").filter({ hasText: "flow" }).waitFor();
      await type(page, JSON.stringify(flow, null, 2));
      await page.locator("[data-testid=node]").filter({ hasText: "greet" }).waitFor();
      await page.getByTestId("flow-name").fill("greeting");
      await page.getByTestId("save").click();
      await page.getByTestId("saved").filter({ hasText: "greeting created" }).waitFor();
      await page.goto(`${world.url}/#/definitions/flows/default/greeting`);
      await page.getByTestId("editor").getByText("entrypoint").waitFor();
      await page.getByTestId("start").click();
      const dialog = page.getByTestId("run-dialog");
      await dialog.getByText("who: needed").waitFor();
      await dialog.getByTestId("argument-who").fill("Ada");
      await dialog.getByTestId("argument-times").fill("many");
      await dialog.getByText("times: not of type integer").waitFor();
      await dialog.getByTestId("argument-times").fill("2");
      await dialog.getByTestId("argument-loud").selectOption("true");
      await dialog.getByTestId("start-token").fill("once");
      await dialog.getByText('--args \'{"who":"Ada","times":2,"loud":true}\'').waitFor();
      await world.checkAccess(page);
      await world.picture(page, "run-dialog");
      await dialog.getByTestId("confirm").click();
      await page.getByTestId("status").filter({ hasText: "succeeded" }).waitFor();
      await page.locator("[data-testid=node]").filter({ hasText: "greet" }).waitFor();
      await page.getByTestId("tab-data").click();
      await page.getByTestId("data").getByText("Hello, Ada").first().waitFor();
      const saved = page.waitForEvent("download");
      await page.getByTestId("capsule").click();
      need((await saved).suggestedFilename().endsWith(".perdure"), "no capsule");
      await world.checkAccess(page);
      await world.picture(page, "flow-data");
    },
  },
  {
    name: "a finding leads to its line, and its example is drawn, in Write and in the catalog (CON-005, CON-006, ANA-003)",
    async play(world) {
      const page = await world.page("#/write");
      await page.getByTestId("verdict").waitFor();
      await type(page, circle);
      await page.getByTestId("verdict").filter({ hasText: "1 finding" }).waitFor();
      const finding = page.getByTestId("problems").locator("li").filter({ hasText: "endless-loop" });
      await finding.getByTestId("example").click();
      await page.getByTestId("example-steps").locator("li").first().waitFor();
      await page.locator("[data-testid=node][data-node=ask] [data-testid=visit]").waitFor();
      await page.locator(".react-flow__edge.is-taken").first().waitFor({ state: "attached" });
      await world.checkAccess(page);
      await world.picture(page, "write-finding");
      const line = Number((await finding.getByTestId("to-line").textContent()).replace(/\D/g, ""));
      need(line >= 5 && line <= 13, `line ${line}`);
      await finding.getByTestId("to-line").click();
      await page.getByTestId("editor").locator(".cm-activeLineGutter").filter({ hasText: String(line) }).first().waitFor();
      await page.locator("[data-testid=node][data-node=again] .node-main").click();
      await page.getByTestId("editor").locator(".cm-activeLineGutter").filter({ hasText: "10" }).first().waitFor();
      await world.api("POST", "/api/v1/resources:apply", { documents: [circle] });
      const viewer = await world.page("#/definitions/playbooks/default/circle", { role: "viewer" });
      await viewer.getByTestId("editor").getByText("step: again").first().waitFor(); // as it was written
      await viewer.getByTestId("example").click();
      await viewer.locator("[data-testid=node][data-node=ask] [data-testid=visit]").waitFor();
      await world.checkAccess(viewer);
      await world.picture(viewer, "definition-finding");
      await viewer.locator("[data-testid=node][data-node=again] .node-main").click();
      await viewer.getByTestId("editor").locator(".cm-activeLineGutter").filter({ hasText: "10" }).first().waitFor();
    },
  },
  {
    name: "write a Story with a mistake, read it at its line, fix it, try it, save it, run it; members are offered (CON-005, CON-006)",
    async play(world) {
      const page = await world.page("#/write");
      await page.getByTestId("verdict").filter({ hasText: "no problem" }).waitFor();
      await page.getByTestId("editor").locator(".cm-content").click();
      await page.keyboard.press("ControlOrMeta+End");
      await page.keyboard.type("  poli");
      const offered = page.getByTestId("editor").locator(".cm-tooltip-autocomplete li").filter({ hasText: "policy" });
      await offered.filter({ hasText: "object" }).waitFor();
      await page.keyboard.press("Escape");
      await type(page, story("grett"));
      await page.getByTestId("problems").filter({ hasText: "line 8" }).waitFor();
      await page.getByTestId("problems").filter({ hasText: "unknown dependency 'grett'" }).waitFor();
      await page.getByTestId("editor").locator(".cm-lint-marker-error").waitFor();
      need(await page.getByTestId("save").isDisabled(), "a document with a problem can be saved");
      await world.checkAccess(page);
      await world.picture(page, "write-problem");
      await type(page, story("greet"));
      await page.getByTestId("verdict").filter({ hasText: "story · no problem" }).waitFor();
      await page.locator("[data-testid=node][data-node=shout]").waitFor();
      await page.getByTestId("tab-try").click();
      await page.getByTestId("try-input").fill('{"who": "Ada"}');
      await page.getByTestId("try").click();
      await page.getByTestId("tried").filter({ hasText: "succeeded" }).waitFor();
      await world.checkAccess(page);
      await page.getByTestId("save").click();
      await page.getByTestId("saved").filter({ hasText: "written created" }).waitFor();
      await page.goto(`${world.url}/#/definitions/stories/default/written`);
      await page.getByTestId("start").click();
      const dialog = page.getByTestId("run-dialog");
      await dialog.getByText("who: needed").waitFor();
      await dialog.getByTestId("input-who").fill("Ada");
      await world.checkAccess(page);
      await dialog.getByTestId("confirm").click();
      await page.getByTestId("status").filter({ hasText: "succeeded" }).waitFor();
      await page.getByTestId("tab-data").click();
      await page.getByTestId("data").getByText("HELLO, ADA").first().waitFor();
    },
  },
  {
    name: "the catalog: document, graph, versions with what changed, runs (CON-005)",
    async play(world) {
      await world.api("POST", "/api/v1/resources:apply", { documents: [story("greet").replace("written", "versioned")] });
      await world.api("POST", "/api/v1/resources:apply", {
        documents: [story("greet").replace("written", "versioned").replace("Hello", "Good day")],
      });
      const schedules = [{ name: "night", cron: "0 2 * * *" }];
      await world.api("POST", "/api/v1/resources:apply", {
        documents: [
          {
            apiVersion: "bubustack.io/v1alpha1",
            kind: "Impulse",
            metadata: { name: "nightly" },
            spec: { templateRef: { name: "cron" }, storyRef: { name: "versioned" }, with: { schedules } },
          },
        ],
      });
      const page = await world.page("#/definitions");
      await page.getByTestId("definitions").getByText("versioned").waitFor();
      await world.checkAccess(page);
      await page.getByTestId("definitions").getByText("release").click();
      await page.getByTestId("editor").getByText("inputsSchema").waitFor();
      need((await page.getByTestId("editor").locator(".cm-line").count()) > 10, "a Story is shown on one line");
      need((await page.getByTestId("editor").getByText("step-lines").count()) === 0, "the catalog's own annotation is shown");
      await world.checkAccess(page);
      await page.getByTestId("tab-graph").click();
      await page.locator("[data-testid=node][data-node=approve]").waitFor();
      await page.getByTestId("tab-runs").click();
      await page.getByText("succeeded").first().waitFor();
      await page.getByTestId("tab-schedule").click();
      await page.getByText("Nothing starts it by the clock").waitFor();
      await page.getByTestId("tab-forecast").click();
      await page.getByTestId("forecast").filter({ hasText: "too few to tell" }).waitFor();
      await page.goto(`${world.url}/#/definitions/stories/default/versioned?view=schedule`);
      await page.getByText("0 2 * * *").waitFor();
      need((await page.locator("section ol time").count()) >= 3, "the next firings are not told");
      await page.goto(`${world.url}/#/definitions/stories/default/versioned?view=versions`);
      const diff = page.getByTestId("difference");
      await diff.locator(".is-new").filter({ hasText: "Good day" }).waitFor();
      await diff.locator(".is-gone").filter({ hasText: "Hello" }).waitFor();
      await world.checkAccess(page);
    },
  },
  {
    name: "compare two runs: where they part, steps and values beside each other (CON-009)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.done}`);
      await page.getByTestId("compare").click();
      await page.getByTestId("candidates").waitFor();
      await world.checkAccess(page);
      await page.getByTestId("candidates").getByText(world.runs.labelled).click();
      await page.getByTestId("parting").filter({ hasText: "They part at event 1" }).waitFor();
      await page.getByTestId("compare-step").filter({ hasText: "≠ ship" }).waitFor();
      await page.getByTestId("compare-step").filter({ hasText: "build" }).click();
      const values = page.getByTestId("compared-values");
      await values.locator(".is-gone").filter({ hasText: "prod-1" }).first().waitFor();
      await values.locator(".is-new").filter({ hasText: "test-1" }).first().waitFor();
      await world.checkAccess(page);
      await world.picture(page, "compare-1440-light");
    },
  },
  {
    name: "the system: servers, figures, retention, tokens made and revoked, audit; a viewer sees no tokens (CON-007)",
    async play(world) {
      const page = await world.page("#/system", { dark: true });
      await page.getByTestId("figures").getByText("store").waitFor();
      await page.getByRole("img", { name: /^Runs of the last day: .*succeeded/ }).locator("canvas").waitFor();
      await page.getByText("the-viewer").first().waitFor();
      await page.getByText("start_run").first().waitFor();
      await page.getByLabel("Retention", { exact: true }).first().getByText("400d").waitFor();
      await page.getByTestId("make-token").click();
      const dialog = page.getByTestId("token-dialog");
      await dialog.getByTestId("token-name").fill("watcher");
      await dialog.getByTestId("token-places").fill("default");
      await dialog.getByText("perdure token create --name watcher --role viewer --namespace default --expires 90d").waitFor();
      await world.checkAccess(page);
      await dialog.getByTestId("confirm").click();
      const token = await dialog.getByTestId("new-token").textContent();
      const asks = async () => (await fetch(`${world.url}/api/v1/whoami`, { headers: { Authorization: `Bearer ${token}` } })).status;
      need((await asks()) === 200, "the new token is refused");
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Revoke watcher" }).click();
      await page.getByTestId("revoke-dialog").getByTestId("confirm").click();
      await page.getByTestId("revoke-dialog").waitFor({ state: "detached" });
      need((await asks()) === 401, "a revoked token is taken");
      await world.checkAccess(page);
      await world.picture(page, "system-1440-dark");
      const other = await world.page("#/system", { role: "viewer" });
      await other.getByText("Servers and partitions").waitFor();
      need((await other.getByText("Audit log").count()) === 0, "a viewer is shown the audit log");
      need((await other.getByTestId("make-token").count()) === 0, "a viewer may make tokens");
    },
  },
  {
    name: "every page fits 360 px, and has no finding of axe at 2,560 px in the dark (CON-022, CON-023)",
    async play(world) {
      const run = (name, view) => `#/runs/${world.runs[name]}?view=${view}&step=build`;
      const pages = {
        runs: ["#/runs", "run-row"],
        "run-graph": [run("done", "graph"), "node"],
        "run-timeline": [run("labelled", "timeline"), "timeline"],
        "run-events": [run("done", "events"), "event"],
        "run-data": [run("done", "data"), "data"],
        definitions: ["#/definitions", "definitions"],
        definition: ["#/definitions/stories/default/release", "editor"],
        write: ["#/write", "node"],
        system: ["#/system", "figures"],
        compare: [`#/compare?a=${world.runs.done}&b=${world.runs.labelled}`, "compared"],
        impact: ["#/definitions/stories/default/release?view=impact", "impact"],
        long: [`#/runs/${world.runs.long}`, "node"],
        "long-list": ["#/runs?label=long%3Dyes", "run-row"],
      };
      const page = await world.page("#/runs", { width: 360, height: 740 });
      for (const [name, [address, shown]] of Object.entries(pages)) {
        await page.emulateMedia({ colorScheme: "light" });
        await page.setViewportSize({ width: 360, height: 740 });
        await page.goto(`${world.url}/${address}`);
        await page.getByTestId(shown).first().waitFor();
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        need(width <= 360, `${name} is ${width} px wide`);
        await page.emulateMedia({ colorScheme: "dark" });
        await page.setViewportSize({ width: 2560, height: 1440 });
        await world.checkAccess(page);
        await world.pictures(page, name);
      }
      const empty = await world.page("#/runs", { role: "empty" });
      await empty.getByTestId("first-steps").waitFor();
      await world.pictures(empty, "empty");
      const stranger = await world.page("#/runs", { role: null, may: ["401"] });
      await stranger.getByTestId("token").waitFor();
      await world.pictures(stranger, "log-in");
    },
  },
  {
    name: "the first page without runs shows the three commands that make one (CON-026)",
    async play(world) {
      const page = await world.page("#/runs", { role: "empty" });
      await page.getByTestId("first-steps").waitFor();
      need((await page.getByTestId("first-steps").locator("pre").count()) === 3, "not three commands");
      await world.checkAccess(page);
    },
  },
];
