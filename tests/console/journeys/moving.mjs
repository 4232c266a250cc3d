// Another version of a document, and the open runs of the one before.
import { need } from "./world.mjs";

const story = (steps) => `apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: moving}
spec:
  steps:
${steps.map((step) => `  - ${step}`).join("\n")}
`;
const BUILD = "{name: build, ref: echo, with: {n: 1}}";
const GATE = "{name: approve, type: gate, needs: [build], with: {timeout: 12h}}";
const FIRST = story([BUILD, GATE, "{name: ship, ref: echo, needs: [approve], with: {to: everybody}}"]);
const SECOND = story([BUILD, GATE, "{name: ship, ref: echo, needs: [approve], with: {to: a few}}"]);
const RENAMED = story(["{name: make, ref: echo, with: {n: 1}}", GATE.replace("build", "make"), "{name: ship, ref: echo, needs: [approve]}"]);
const REPLACED = story([BUILD, GATE.replace("gate", "wait").replace("timeout: 12h", "until: '{{ true }}'")]);

export default [
  {
    name: "what a change touches: open runs are judged, moved after a dry run, and moved back (ANA-032, CON-004, CON-005)",
    async play(world) {
      const apply = (text) => world.api("POST", "/api/v1/resources:apply", { documents: [text] });
      const start = async () => (await world.api("POST", "/api/v1/runs", { name: "moving" })).id;
      const moves = async (run) => {
        const { items } = await world.api("GET", `/api/v1/runs/${run}/events?limit=1000`);
        return items.filter((event) => event.event_type === "storyrun.migrated").length;
      };
      await apply(FIRST);
      const runs = [await start(), await start(), await start()];
      for (const run of runs) {
        while ((await world.api("GET", `/api/v1/runs/${run}`)).status !== "waiting");
      }
      await apply(SECOND);
      const page = await world.page("#/definitions/stories/default/moving?view=impact");
      await page.getByTestId("verdicts").filter({ hasText: "3 safe" }).waitFor();
      await page.getByLabel(`Move ${runs[2]}`).uncheck();
      await world.checkAccess(page);
      await world.picture(page, "impact-1440-light");
      await page.getByTestId("move").filter({ hasText: "Move 2 runs" }).click();
      const dialog = page.getByTestId("move-dialog");
      await dialog.getByTestId("preview").filter({ hasText: "A dry run says: 2 safe" }).waitFor();
      need((await moves(runs[0])) === 0, "a dry run has moved a run");
      await world.checkAccess(page);
      await world.picture(page, "move-dialog");
      await dialog.getByTestId("confirm").click();
      await dialog.getByTestId("preview").filter({ hasText: "Moved: 2 moved" }).waitFor();
      need((await moves(runs[0])) === 1 && (await moves(runs[2])) === 0, "the wrong runs were moved");
      await dialog.getByTestId("undo").click();
      await dialog.getByTestId("preview").filter({ hasText: "Back to the version before: 2 moved" }).waitFor();
      need((await moves(runs[0])) === 2, "the move was not undone");
      await dialog.getByTestId("close").click();
      await page.getByTestId("verdicts").filter({ hasText: "3 safe" }).waitFor();

      // While it is written: a step has another name, and one that waits is of another type.
      await page.goto(`${world.url}/#/write?kind=stories&namespace=default&name=moving`);
      const write = async (text) => {
        await page.getByTestId("editor").locator(".cm-content").click();
        await page.keyboard.press("ControlOrMeta+a");
        await page.keyboard.press("Delete");
        await page.keyboard.insertText(text);
      };
      await write(RENAMED);
      await page.locator("[data-testid=node][data-node=make]").waitFor();
      await page.getByTestId("tab-impact").click();
      await page.getByTestId("verdicts").filter({ hasText: "3 need a mapping" }).waitFor();
      need(await page.getByTestId("move").isDisabled(), "runs without a mapping can be moved");
      await page.getByTestId("map-build").selectOption("make");
      await page.getByTestId("verdicts").filter({ hasText: "3 safe" }).waitFor();
      await world.checkAccess(page);
      await world.picture(page, "write-impact");
      await write(REPLACED);
      await page.getByTestId("judge").click();
      await page.getByTestId("judged-run").filter({ hasText: "blocked" }).filter({ hasText: "approve" }).first().waitFor();
      for (const run of runs) await world.api("POST", `/api/v1/runs/${run}/cancel`, {});
    },
  },
];
