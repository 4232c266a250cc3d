// One run: live, gates, moments, forks, long histories, hostile texts.
import { need } from "./world.mjs";

const node = (page, id) => page.locator(`[data-testid=node][data-node="${id}"]`);

export default [
  {
    name: "watch a run live to its end (CON-002)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.approval}`);
      await page.getByTestId("run-live").filter({ hasText: "live" }).waitFor();
      await page.getByTestId("status").filter({ hasText: "waiting" }).waitFor();
      await page.getByTestId("why-text").filter({ hasText: "gate of step 'ask'" }).waitFor();
      await node(page, "ask").locator(".is-waiting").first().waitFor();
      const loads = page.seen.filter((url) => url.endsWith("/")).length;
      await page.getByTestId("why-patch").click();
      await page.getByTestId("field-ctx").fill('{"approved": true, "by": "Ada"}');
      await page.getByTestId("confirm").click();
      await page.getByTestId("status").filter({ hasText: "succeeded" }).waitFor();
      await node(page, "pay").locator(".status-icon.is-good").waitFor();
      need(page.seen.filter((url) => url.endsWith("/")).length === loads, "the page was loaded again");
      await page.getByTestId("tab-data").click();
      await page.getByTestId("data").getByText("Ada").first().waitFor();
      await world.checkAccess(page);
    },
  },
  {
    name: "approve a gate at 360 px (CON-002, CON-023)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.phone}`, { width: 360, height: 740 });
      await page.getByTestId("why-text").filter({ hasText: "gate 'approve'" }).waitFor();
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      need(width <= 360, `the page is ${width} px wide`);
      await world.checkAccess(page);
      await world.picture(page, "run-360-light");
      await page.getByTestId("why-approve").click();
      const dialog = page.getByTestId("action-dialog");
      await dialog.getByTestId("field-message").fill("looks good");
      need((await dialog.getByTestId("command").textContent()).startsWith(`perdure approve ${world.runs.phone} approve`), "command");
      await world.picture(page, "approve-360-light");
      await dialog.getByTestId("confirm").click();
      await page.getByTestId("status").filter({ hasText: "succeeded" }).waitFor();
      await page.goto(`${world.url}/#/runs`);
      await page.getByTestId("run-row").first().waitFor();
      need((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360, "the list is too wide");
      await world.checkAccess(page);
      await world.picture(page, "runs-360-light");
    },
  },
  {
    name: "scrub a finished run backwards; the address keeps the moment (CON-003)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.done}`);
      await node(page, "ship").locator(".status-icon.is-good").waitFor();
      await page.getByTestId("scrubber").focus();
      await page.getByTestId("scrubber").fill("6");
      await page.getByTestId("past").filter({ hasText: "execution.ended" }).waitFor();
      await node(page, "ship").locator(".status-icon.is-none").waitFor();
      need(page.url().includes("at=6"), page.url());
      await page.getByTestId("then").filter({ hasText: "event 6" }).waitFor();
      await page.getByTestId("status").filter({ hasText: "running" }).waitFor();
      await page.getByTestId("why-text").filter({ hasText: /internal moves|is at work|step/ }).waitFor();
      await page.reload();
      await node(page, "ship").locator(".status-icon.is-none").waitFor();
      await page.getByTestId("tab-timeline").click();
      await page.waitForFunction(() => document.querySelectorAll("[data-testid=bar]").length === 1);
      await page.getByTestId("tab-events").click();
      await page.waitForFunction(() => document.querySelectorAll("[data-testid=event]").length === 6);
      await page.getByTestId("tab-graph").click();
      await page.keyboard.press("]");
      await page.waitForFunction(() => location.hash.includes("at=7"));
      await page.getByTestId("play").click();
      await page.waitForFunction(() => !location.hash.includes("at="), undefined, { timeout: 60_000 });
      await node(page, "ship").locator(".status-icon.is-good").waitFor();
    },
  },
  {
    name: "fork from the middle (CON-004)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.done}?at=20`);
      await page.getByTestId("past").waitFor();
      await page.getByTestId("act-fork").click();
      const dialog = page.getByTestId("action-dialog");
      await dialog.getByTestId("preview").filter({ hasText: "At event 20" }).waitFor();
      need((await dialog.getByTestId("command").textContent()).endsWith("--at 20"), "command");
      await dialog.getByTestId("confirm").click();
      await page.waitForFunction((id) => !location.hash.includes(id), world.runs.done);
      await page.getByTestId("why-text").filter({ hasText: "gate 'approve'" }).waitFor();
      const fork = page.url().split("/").at(-1);
      await page.getByTestId("act-cancel").click();
      await page.getByTestId("field-reason").fill("only tried");
      await page.getByTestId("confirm").click();
      await page.getByTestId("status").filter({ hasText: "cancelled" }).waitFor();
      need((await world.api("GET", `/api/v1/runs/${fork}`)).status === "cancelled", "the API says otherwise");
    },
  },
  {
    name: "pause, resume, reject and delete a run; its operations say who did it (CON-004)",
    async play(world) {
      const { id } = await world.api("POST", "/api/v1/runs", { name: "release", input: { env: "spare" } });
      const page = await world.page(`#/runs/${id}`);
      const act = async (button, words) => {
        await page.getByTestId(button).first().click();
        const dialog = page.getByTestId("action-dialog");
        await dialog.getByTestId("preview").filter({ hasText: words }).waitFor();
        return dialog;
      };
      const confirm = async (dialog) => {
        await dialog.getByTestId("confirm").click();
        await dialog.waitFor({ state: "detached" });
      };
      await confirm(await act("act-pause", "makes no move"));
      await page.getByTestId("status").filter({ hasText: "paused" }).waitFor();
      await confirm(await act("why-resume", "goes on"));
      await page.getByTestId("status").filter({ hasText: "waiting" }).waitFor();
      const signal = await act("act-signal", "is sent the signal");
      await signal.getByTestId("field-name").fill("hint");
      await signal.getByTestId("field-value").fill('{"seen": true}');
      need((await signal.getByTestId("command").textContent()) === `perdure signal ${id} hint '{"seen": true}'`, "command");
      await page.keyboard.press("Escape"); // nothing in this document waits for one: the server would refuse it
      await page.getByTestId("tab-operations").click();
      for (const words of ["pause run", "resume run"]) await page.getByTestId("operations").getByText(words).first().waitFor();
      await confirm(await act("why-reject", "its step fails"));
      await page.getByTestId("status").filter({ hasText: "failed" }).waitFor();
      const removal = await act("act-delete", "removed, for ever");
      await removal.getByTestId("confirm").click();
      await page.waitForFunction((run) => !location.hash.includes(run), id);
      const gone = await fetch(`${world.url}/api/v1/runs/${id}`, { headers: { Authorization: `Bearer ${world.given.tokens.admin}` } });
      need(gone.status === 404, `it is still there: ${gone.status}`);
    },
  },
  {
    name: "send a signal: the run that waits for it goes on; its effects are those of the moment (CON-003, CON-004)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.invoice}`);
      await node(page, "payment").locator(".is-waiting").first().waitFor();
      await page.getByTestId("act-signal").click();
      const dialog = page.getByTestId("action-dialog");
      await dialog.getByTestId("field-name").fill("bill.paid");
      await dialog.getByTestId("field-value").fill('[17');
      need(await dialog.getByTestId("confirm").isDisabled(), "half a value can be sent");
      await dialog.getByTestId("field-value").fill("17");
      await dialog.getByTestId("preview").filter({ hasText: "is sent the signal “bill.paid”" }).waitFor();
      const command = await dialog.getByTestId("command").textContent();
      need(command === `perdure signal ${world.runs.invoice} bill.paid 17`, command);
      await world.checkAccess(page);
      await dialog.getByTestId("confirm").click();
      await dialog.waitFor({ state: "detached" });
      await page.getByTestId("status").filter({ hasText: "succeeded" }).waitFor();
      await node(page, "receipt").locator(".status-icon.is-good").waitFor();
      await page.getByTestId("tab-operations").click();
      await page.getByTestId("operations").getByText("signal run").waitFor();
      await page.getByTestId("tab-graph").click();
      await node(page, "receipt").locator(".node-main").click();
      await page.getByTestId("effects").filter({ hasText: "#send completed" }).waitFor();
      await page.keyboard.press("[");
      await page.getByTestId("past").waitFor();
      await page.getByTestId("effects").filter({ hasText: "#send completed" }).waitFor();
      await page.getByTestId("scrubber").fill("6"); // before the signal
      await page.getByTestId("past").waitFor();
      await page.getByTestId("effects").waitFor({ state: "detached" });
    },
  },
  {
    name: "one selection for all views, kept by links and the back button (CON-002)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.done}`);
      await node(page, "unit").locator(".node-main").click();
      await page.getByTestId("panel").getByText("verify/unit").waitFor();
      await page.getByTestId("panel").getByText("passed").first().waitFor();
      await page.getByTestId("tab-timeline").click();
      await page.locator("[data-testid=bar][aria-pressed=true]").filter({ hasText: "unit" }).waitFor();
      const axis = await page.getByTestId("axis").boundingBox();
      await page.mouse.move(axis.x + axis.width * 0.2, axis.y + 10);
      await page.mouse.down();
      await page.mouse.move(axis.x + axis.width * 0.6, axis.y + 10, { steps: 3 });
      await page.mouse.up();
      await page.getByTestId("whole-run").click();
      await page.getByTestId("zoom-in").press("Enter");
      await page.getByTestId("whole-run").press("Enter");
      await page.getByTestId("whole-run").waitFor({ state: "detached" });
      await page.getByTestId("bar").filter({ hasText: "build" }).click();
      await page.getByTestId("expressions").getByText("{{ inputs.env }}-1").waitFor();
      await page.getByTestId("expression").fill("{{ inputs.env }}");
      await page.getByTestId("evaluate").click();
      await page.getByTestId("value").getByText('"prod"').waitFor();
      await page.getByTestId("field").fill("input.tag");
      await page.getByTestId("explain").click();
      await page.getByTestId("provenance").getByText("{{ inputs.env }}-1").waitFor();
      await world.checkAccess(page);
      await page.getByTestId("tab-events").click();
      await page.waitForFunction(() => {
        const shown = [...document.querySelectorAll("[data-testid=event]")];
        return shown.length > 2 && shown.every((each) => each.textContent.includes("build"));
      });
      await page.getByTestId("event").first().click();
      await page.getByTestId("event-json").getByText("idempotencyKey").waitFor();
      await world.checkAccess(page);
      await page.goBack();
      await page.getByTestId("timeline").waitFor();
      await page.goBack();
      await page.getByTestId("panel").getByText("verify/unit").waitFor();
      await page.getByTestId("tab-graph").click();
      await page.locator(".node.is-selected").filter({ hasText: "unit" }).waitFor();
    },
  },
  {
    name: "wide runs of every language open with few requests, bytes and elements (CON-002, CON-021)",
    async play(world) {
      const page = await world.page("#/runs", { may: ["429", "503"] }); // which the page tries again
      await page.getByTestId("run-row").first().waitFor();
      for (const [name, words] of [["loop", "10,000"], ["gather", "10,000"], ["map", "300"]]) {
        const { length } = page.seen;
        const { received, refused } = page;
        const began = Date.now();
        await page.goto(`${world.url}/#/runs/${world.runs[name]}`);
        await page.getByTestId("node").getByText(words).first().waitFor();
        await page.getByTestId("why-text").filter({ hasText: "succeeded" }).waitFor();
        world.measured.push(`${name}: ${Date.now() - began} ms, ${page.seen.length - length} requests, ${page.received - received} bytes`);
        const asked = page.seen.slice(length).filter((url) => url.includes("/api/"));
        need(asked.length - (page.refused - refused) <= 10, `${name}: ${asked.length} requests\n${asked.join("\n")}`);
        await page.getByTestId("tab-timeline").click();
        await page.getByTestId("bar").first().waitFor();
        need(page.received - received < 500_000, `${name}: ${page.received - received} bytes`); // with the code of the graph
        const drawn = await page.evaluate(() => document.querySelectorAll("*").length);
        need(drawn < 1_500, `${name}: ${drawn} elements`);
      }
    },
  },
  {
    name: "open a loop of 10,000 iterations and its 90,000 events (CON-002, CON-021)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.loop}`, { may: ["429", "503"] });
      await node(page, "each").first().waitFor();
      await node(page, "each/each_task").getByText("10,000").first().waitFor();
      const drawn = await page.evaluate(() => document.querySelectorAll("*").length);
      need(drawn < 1_500, `${drawn} elements`);
      await node(page, "each/each_task").locator(".node-main").click();
      await page.getByTestId("visits").locator("li").nth(100).waitFor();
      await page.getByTestId("more-visits").click();
      await page.getByTestId("tab-timeline").click();
      await page.getByTestId("bar").filter({ hasText: "more" }).waitFor();
      need((await page.getByTestId("bar").count()) < 60, "too many bars");
      await page.getByTestId("close-panel").click();
      await page.getByTestId("tab-events").click();
      await page.getByTestId("event").first().waitFor();
      const before = page.seen.length;
      await page.getByTestId("event-list").evaluate((list) => list.scrollTo(0, list.scrollHeight));
      await page.getByTestId("event").filter({ hasText: "playbook" }).last().waitFor();
      need(page.seen.length - before <= 4, `${page.seen.length - before} requests for one jump`);
      need((await page.getByTestId("event").count()) < 120, "too many rows");
      await page.getByTestId("filter-events").fill("playbook.started");
      await page.getByText("1 event found").waitFor();
      await world.picture(page, "loop-events");
    },
  },
  {
    name: "hostile names, labels and payloads are text (CON-024)",
    async play(world) {
      const page = await world.page("#/runs?q=%3Cimg");
      await page.getByTestId("run-row").filter({ hasText: "<img src=x onerror=" }).first().waitFor();
      await page.locator("a.run-name").first().click();
      await page.getByTestId("why-text").waitFor();
      await page.getByTestId("tab-data").click();
      await page.getByTestId("data").getByRole("button", { name: "Fetch 10.0 MB" }).first().click();
      await page.getByTestId("data").getByRole("button", { name: "unfold {3 members}" }).first().click();
      await page.getByTestId("data").getByText("<script>").first().waitFor();
      await page.getByTestId("tab-events").click();
      await page.getByTestId("event").first().click();
      await page.getByTestId("event-json").waitFor();
      need((await page.evaluate(() => globalThis.hacked)) === undefined, "a payload was run");
      need((await page.locator("#page img, #page script, #page iframe").count()) === 0, "markup became elements");
      const elements = await page.evaluate(() => document.querySelectorAll("*").length);
      need(elements < 5_000, `${elements} elements`);
      await world.checkAccess(page);
    },
  },
  {
    name: "dark by the system, at 2,560 px (CON-022, CON-023)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.done}?step=build`, { dark: true, width: 2560, height: 1440, zone: "Asia/Tokyo" });
      await page.getByTestId("panel").getByText("prod-1").first().waitFor();
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      need(ground === "rgb(20, 22, 26)", ground);
      await node(page, "ship").waitFor();
      const { started_at: started } = await world.api("GET", `/api/v1/runs/${world.runs.done}`);
      const times = await page.locator(".run-head time").first().evaluate((time) => [time.textContent, time.title]);
      const hour = String((new Date(started).getUTCHours() + 9) % 24).padStart(2, "0");
      need(times[0].includes(` ${hour}:`), `${times[0]} is not the time in Tokyo`);
      need(times[1].includes(`${started.slice(0, 10)} ${started.slice(11, 19)}`) && times[1].includes("UTC"), times[1]);
      await world.checkAccess(page);
      await world.picture(page, "run-2560-dark");
      await page.goto(`${world.url}/#/runs`);
      await page.getByTestId("run-row").first().waitFor();
      await world.checkAccess(page);
      await world.picture(page, "runs-2560-dark");
    },
  },
  {
    name: "the server is killed and comes back: nothing is shown as live meanwhile (CON-025)",
    async play(world) {
      const page = await world.page(`#/runs/${world.runs.gate}`, { may: ["ERR_", "net::"] });
      await page.getByTestId("run-live").filter({ hasText: /^live$/ }).waitFor();
      await world.ask("kill");
      await page.getByTestId("banner").filter({ hasText: "does not answer" }).waitFor();
      await page.getByTestId("run-live").filter({ hasText: "not live" }).waitFor();
      await page.getByTestId("why-text").filter({ hasText: "gate 'approve'" }).waitFor();
      await world.ask("start");
      await page.getByTestId("banner").waitFor({ state: "hidden" });
      await page.getByTestId("run-live").filter({ hasText: /^live$/ }).waitFor();
      await world.api("POST", `/api/v1/runs/${world.runs.gate}/gates/approve`, { state: "Approved" });
      await page.getByTestId("status").filter({ hasText: "succeeded" }).waitFor();
    },
  },
];
