// Streaming Stories: what flows, what waits, what is dropped.
import { need } from "./world.mjs";

const figure = (page, step, column) => page.locator(`[data-testid=stream-step][data-step=${step}] td`).nth(column);
const number = async (page, step, column) => Number((await figure(page, step, column).textContent()).replaceAll(",", "").replace(/\D.*$/s, ""));

export default [
  {
    name: "watch a topology: rates along its edges, a full buffer, drops, the latest packets, its end (CON-010, CON-024)",
    async play(world, { documents }) {
      const { id } = await world.api("POST", "/api/v1/runs", { document: documents.clicks });
      const page = await world.page(`#/runs/${id}`);
      await page.getByTestId("tab-streams").click();
      await page.waitForFunction(() => location.hash.includes("view=streams"));
      await page.getByTestId("streams-at").filter({ hasText: "live" }).waitFor();
      await figure(page, "enrich", 2).filter({ hasText: /^[\d.]+\/s$/ }).waitFor();
      await page.locator(".streams .react-flow__edge-text").filter({ hasText: /^[\d.]+\/s/ }).first().waitFor();
      await figure(page, "store", 10).filter({ hasText: "buffer full" }).waitFor();
      await page.locator(".streams .react-flow__edge-text").filter({ hasText: /\d+ % full · .* dropped/ }).first().waitFor();
      await figure(page, "count", 8).filter({ hasText: /\d/ }).waitFor(); // its lag
      const before = await number(page, "enrich", 4);
      need(before > 0, `${before} packets were received`);
      await page.waitForFunction(
        (count) => {
          const cell = document.querySelectorAll("[data-testid=stream-step][data-step=enrich] td")[4];
          return Number(cell.textContent.replace(/,/g, "")) > count;
        },
        before,
      );
      const packet = page.getByTestId("packets").locator("li").first();
      await packet.getByText("<img src=x onerror=hacked=5>").first().waitFor();
      need((await page.evaluate(() => globalThis.hacked)) === undefined, "a packet became a part of the page");
      await page.getByTestId("stream-chart").locator("canvas").waitFor();
      await world.checkAccess(page);
      await world.picture(page, "streams-1440-light");
      await page.locator(".streams [data-testid=node][data-node=store] .node-main").click();
      await page.getByTestId("panel").waitFor();
      await page.keyboard.press("Escape");
      await page.setViewportSize({ width: 360, height: 740 });
      await world.picture(page, "streams-360-light");
      await world.api("POST", `/api/v1/runs/${id}/cancel`, {});
      await page.getByTestId("status").filter({ hasText: /cancelled|finished/ }).waitFor();
      await page.getByTestId("streams-at").filter({ hasNotText: "live" }).waitFor();
      need((await number(page, "enrich", 4)) >= before, `the last figures are gone: ${await number(page, "enrich", 4)} after ${before}`);
      await world.checkAccess(page);
    },
  },
];
