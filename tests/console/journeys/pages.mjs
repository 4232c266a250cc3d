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

export default [
  {
    name: "write a Story with a mistake, read it at its line, fix it, try it, save it, run it (CON-005, CON-006)",
    async play(world) {
      const page = await world.page("#/write");
      await page.getByTestId("verdict").filter({ hasText: "no problem" }).waitFor();
      const text = page.getByTestId("editor").locator(".cm-content");
      const type = async (words) => {
        await text.click();
        await page.keyboard.press("ControlOrMeta+a");
        await page.keyboard.press("Delete"); // over a selection the browser would keep its style, which the policy forbids
        await page.keyboard.insertText(words);
      };
      await type(story("grett"));
      await page.getByTestId("problems").filter({ hasText: "line 8" }).waitFor();
      await page.getByTestId("problems").filter({ hasText: "unknown dependency 'grett'" }).waitFor();
      await page.getByTestId("editor").locator(".cm-lint-marker-error").waitFor();
      need(await page.getByTestId("save").isDisabled(), "a document with a problem can be saved");
      await world.checkAccess(page);
      await world.picture(page, "write-problem");
      await type(story("greet"));
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
      const page = await world.page("#/definitions");
      await page.getByTestId("definitions").getByText("versioned").waitFor();
      await world.checkAccess(page);
      await page.getByTestId("definitions").getByText("release").click();
      await page.getByTestId("editor").getByText("inputsSchema").waitFor();
      await world.checkAccess(page);
      await page.getByTestId("tab-graph").click();
      await page.locator("[data-testid=node][data-node=approve]").waitFor();
      await page.getByTestId("tab-runs").click();
      await page.getByText("succeeded").first().waitFor();
      await page.getByTestId("tab-schedule").click();
      await page.getByText("Nothing starts it by the clock").waitFor();
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
      const page = await world.page(`#/compare?a=${world.runs.done}&b=${world.runs.labelled}`);
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
    name: "the system: servers, figures, tokens, audit; a viewer sees no tokens (CON-007)",
    async play(world) {
      const page = await world.page("#/system", { dark: true });
      await page.getByTestId("figures").getByText("store").waitFor();
      await page.getByText("the-viewer").first().waitFor();
      await page.getByText("start_run").first().waitFor();
      await world.checkAccess(page);
      await world.picture(page, "system-1440-dark");
      const other = await world.page("#/system", { role: "viewer" });
      await other.getByText("Servers and partitions").waitFor();
      need((await other.getByText("Audit log").count()) === 0, "a viewer is shown the audit log");
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
