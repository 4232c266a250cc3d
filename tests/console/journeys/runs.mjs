// Lists of runs: log-in, search, filters, many at once, lost connections.
import { need } from "./world.mjs";

const rows = (page) => page.getByTestId("run-row");

export default [
  {
    name: "log in by the printed address, once (CON-024, SRV-021)",
    async play(world, { address }) {
      const page = await world.page(null, { role: null, may: ["401"] });
      await page.goto(address);
      await page.getByTestId("runs").waitFor();
      need(!page.url().includes("login"), "the code stays in the address");
      need(page.seen.every((url) => !url.includes(address.split("=")[1])), "the code is in a request's address");
      const [cookie] = await page.context().cookies();
      need(cookie.httpOnly && cookie.sameSite === "Strict", "a script can read the cookie");
      await page.reload();
      await page.getByTestId("runs").waitFor();
      await page.getByTestId("log-out").click();
      await page.getByTestId("token").waitFor();
      await world.checkAccess(page);
      const again = await world.page(null, { role: null, may: ["401"] });
      await again.goto(address);
      await again.getByTestId("log-in-problem").waitFor();
    },
  },
  {
    name: "log in with a token; a wrong one is refused",
    async play(world, { tokens }) {
      const page = await world.page("#/runs", { role: null, may: ["401"] });
      await page.getByTestId("token").fill("pdr_wrong");
      await page.getByTestId("log-in").click();
      await page.getByTestId("log-in-problem").waitFor();
      await page.getByTestId("token").fill(tokens.viewer);
      await page.getByTestId("log-in").click();
      await page.getByTestId("who").filter({ hasText: "viewer" }).waitFor();
    },
  },
  {
    name: "a session that has ended asks for a token, and keeps the place (CON-025, SRV-021)",
    async play(world, { tokens }) {
      const { token } = await world.api("POST", "/api/v1/tokens", { name: "leaver", role: "viewer" });
      const page = await world.page("#/runs", { role: null, may: ["401"] });
      await page.getByTestId("token").fill(token);
      await page.getByTestId("log-in").click();
      await page.goto(`${world.url}/#/runs/${world.runs.done}?view=timeline`);
      await page.getByTestId("bar").first().waitFor();
      await world.api("DELETE", "/api/v1/tokens/leaver");
      await page.getByTestId("tab-data").click();
      await page.getByTestId("log-in-problem").filter({ hasText: "session has ended" }).waitFor();
      need((await page.getByTestId("data").count()) === 0, "what the session saw is still shown");
      await page.getByTestId("token").fill(tokens.viewer);
      await page.getByTestId("log-in").click();
      await page.getByTestId("data").waitFor();
      await page.goto(`${world.url}/#/nonsense`);
      await page.getByTestId("no-page").waitFor();
    },
  },
  {
    name: "the first page is small, asks nobody else, and shows no more rows than it reads (CON-021, CON-024)",
    async play(world) {
      const page = await world.page(null);
      let bytes = 0;
      page.on("response", (response) => {
        const headers = response.headers();
        if (response.url().includes("/assets/") || response.url() === `${world.url}/`) {
          bytes += Number(headers["content-length"] ?? 0);
        }
      });
      const response = await page.goto(`${world.url}/#/runs`);
      const policy = (await response.allHeaders())["content-security-policy"];
      need(!policy.includes("unsafe"), policy);
      await page.getByTestId("run-row").first().waitFor();
      await page.locator(".status-chart canvas").waitFor();
      need(bytes > 50_000 && bytes < 300_000, `the first page has ${bytes} bytes`);
      const elements = await page.evaluate(() => document.querySelectorAll("*").length);
      need(elements < 4_000, `${elements} elements`);
      need((await rows(page).count()) <= 100, "a page of the list has at most 100 runs");
      need((await page.evaluate(() => document.querySelectorAll("script:not([src]), style").length)) === 0, "inline");
      const requests = page.seen.filter((url) => url.includes("/api/v1/")).length;
      need(requests <= 12, `${requests} requests`);
      await world.checkAccess(page);
      await world.picture(page, "runs-1440-light");
    },
  },
  {
    name: "find a failed run among many, see its input and error, redrive it (CON-001, CON-002, CON-004)",
    async play(world) {
      const page = await world.page("#/runs");
      await page.getByTestId("search").fill("needle");
      await page.getByTestId("add-status").selectOption("failed");
      await page.getByTestId("chip").filter({ hasText: "failed" }).waitFor();
      await page.waitForFunction(() => location.hash.includes("status=failed") && location.hash.includes("q=needle"));
      await rows(page).filter({ hasText: "needle" }).first().waitFor();
      await page.waitForFunction(() => document.querySelectorAll("[data-testid=run-row]").length === 1);
      await page.locator("a.run-name").click();
      await page.getByTestId("why-text").filter({ hasText: "failed" }).waitFor();
      await page.locator("[data-testid=node][data-node=fetch] .node-main").click();
      const panel = page.getByTestId("panel");
      await panel.getByTestId("step-error").filter({ hasText: "does not allow connections" }).waitFor();
      await panel.getByText("http://127.0.0.1:9/needle").first().waitFor();
      await world.checkAccess(page);
      await world.picture(page, "failed-run");
      await page.getByTestId("why-redrive").click();
      const dialog = page.getByTestId("action-dialog");
      await dialog.getByTestId("preview").filter({ hasText: "reopened" }).waitFor();
      const command = await dialog.getByTestId("command").textContent();
      need(command === `perdure redrive ${world.runs.needle}`, command);
      need((await dialog.getByTestId("request").textContent()).includes("/redrive"), "no request is shown");
      await world.checkAccess(page);
      const before = (await world.api("GET", `/api/v1/runs/${world.runs.needle}/status`)).last_seq;
      await dialog.getByTestId("confirm").click();
      await dialog.waitFor({ state: "detached" });
      await page.waitForFunction(
        (seq) => Number(document.querySelector("[data-testid=scrubber]")?.max ?? 0) > seq,
        before,
      );
      await page.getByTestId("tab-operations").click();
      await page.getByTestId("operations").getByText("redrive run").waitFor();
    },
  },
  {
    name: "filters are in the address; back, reload and saved views keep them (CON-001)",
    async play(world) {
      const page = await world.page("#/runs");
      await page.getByTestId("add-language").selectOption("story");
      await page.getByTestId("chip").filter({ hasText: "language story" }).waitFor();
      await page.getByTestId("add-filter").fill("label:team=shop");
      await page.keyboard.press("Enter");
      await page.getByTestId("chip").filter({ hasText: "team=shop" }).waitFor();
      await page.waitForFunction(() => document.querySelectorAll("[data-testid=run-row]").length === 1);
      await page.reload();
      await page.getByTestId("chip").filter({ hasText: "team=shop" }).waitFor();
      await rows(page).first().locator("a.run-name").click();
      await page.getByTestId("why-text").waitFor();
      await page.goBack();
      await page.getByTestId("chip").filter({ hasText: "team=shop" }).waitFor();
      await page.getByTestId("save-view").click();
      await page.getByTestId("view-name").fill("shop");
      await page.keyboard.press("Enter");
      await page.getByText("Forget “shop”").waitFor();
      await page.getByRole("button", { name: "Remove label team=shop" }).click();
      await page.getByTestId("chip").filter({ hasText: "team=shop" }).waitFor({ state: "detached" });
      await page.getByTestId("saved-views").selectOption("shop");
      await page.getByTestId("chip").filter({ hasText: "team=shop" }).waitFor();
    },
  },
  {
    name: "many runs are removed, or cancelled, after a preview (CON-001)",
    async play(world) {
      for (let number = 0; number < 2; number += 1) {
        await world.api("POST", "/api/v1/runs", { name: "release", input: { env: "batch" }, labels: { batch: "yes" } });
      }
      const listed = await world.page("#/runs?label=batch%3Dyes");
      await rows(listed).nth(1).waitFor();
      await listed.getByLabel("Select all runs of this page").check();
      await listed.getByTestId("batch-cancel").click();
      await listed.getByTestId("preview").filter({ hasText: "Each of 2 runs is asked to stop" }).waitFor();
      await world.checkAccess(listed);
      await listed.getByTestId("confirm").click();
      await listed.getByText("2 runs done").waitFor();
      await listed.keyboard.press("Escape");
      await rows(listed).filter({ hasText: "cancelled" }).nth(1).waitFor();
      const page = await world.page("#/runs?name=spare");
      await rows(page).first().waitFor();
      await page.getByLabel("Select all runs of this page").check();
      await page.getByTestId("batch-all-delete").click();
      const dialog = page.getByTestId("batch-dialog");
      await dialog.getByTestId("dry-run").click();
      await dialog.getByTestId("preview").filter({ hasText: "3 runs" }).waitFor();
      await dialog.getByTestId("confirm").click();
      await dialog.getByText("3 runs done").waitFor();
      await page.keyboard.press("Escape");
      await page.getByText("No run matches").waitFor();
    },
  },
  {
    name: "a viewer sees no button that it may not use (CON-004)",
    async play(world) {
      const page = await world.page("#/runs?status=waiting", { role: "viewer" });
      await rows(page).first().waitFor();
      need((await page.getByTestId("go-write").count()) === 0, "documents can be written");
      need((await page.locator("input[type=checkbox]").count()) === 0, "runs can be selected");
      await page.goto(`${world.url}/#/runs/${world.runs.labelled}`);
      await page.getByTestId("why-text").filter({ hasText: "waits" }).waitFor();
      need((await page.getByTestId("actions").count()) === 0, "there are actions");
      need((await page.getByTestId("why-approve").count()) === 0, "the gate has a button");
      await page.locator("[data-testid=node][data-node=build] .node-main").click();
      await page.getByTestId("panel").waitFor();
      need((await page.getByTestId("evaluate").count()) === 0, "expressions can be evaluated");
      await page.goto(`${world.url}/#/definitions`);
      await page.getByTestId("definitions").getByText("release").waitFor();
      need((await page.getByTestId("write-new").count()) === 0, "the catalog leads to the editor");
      await page.getByTestId("definitions").getByText("release").click();
      await page.getByTestId("editor").getByText("inputsSchema").waitFor();
      need((await page.getByTestId("start").count()) === 0, "a run can be started");
      need((await page.getByTestId("tab-impact").count()) === 0, "runs can be moved");
      need((await page.getByText("Edit", { exact: true }).count()) === 0, "the document can be edited");
    },
  },
  {
    name: "keyboard only: keys are listed, j and k move, o opens, g r goes back (CON-022)",
    async play(world) {
      const page = await world.page("#/system");
      await page.getByTestId("go-runs").waitFor();
      await page.keyboard.press("g");
      await page.keyboard.press("r");
      await rows(page).nth(2).waitFor();
      await page.keyboard.press("?");
      await page.getByTestId("key-help").getByText("search").waitFor();
      await world.checkAccess(page);
      await page.keyboard.press("Escape");
      await page.getByTestId("key-help").waitFor({ state: "detached" });
      await page.keyboard.press("j");
      await page.keyboard.press("j");
      await page.waitForFunction(() => document.activeElement?.classList.contains("run-name"));
      const focused = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      need(focused === "solid", "the focus is not visible");
      await page.keyboard.press("k");
      await page.keyboard.press("o");
      await page.getByTestId("why-text").waitFor();
      await page.keyboard.press("3");
      await page.getByTestId("view-events").waitFor();
      await page.keyboard.press("1");
      await page.getByTestId("node").first().waitFor();
      await page.keyboard.press("j");
      await page.getByTestId("panel").waitFor();
      await page.keyboard.press("Escape");
      await page.getByTestId("panel").waitFor({ state: "detached" });
      await page.keyboard.press("/");
      await page.keyboard.press("g");
      await page.keyboard.press("r");
      await rows(page).first().waitFor();
      await page.keyboard.press("/");
      await page.keyboard.type("needle");
      await page.waitForFunction(() => location.hash.includes("q=needle"));
    },
  },
];
