// All runs: filters are in the address, so that a link shows the same list to somebody else.
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { addressTo, goTo, usePlace } from "../address";
import { ask, mayAsk } from "../api/client";
import { useIsLost } from "../api/connection";
import { follow } from "../api/live";
import { useAnswer } from "../api/use";
import type { RunItem } from "../api/types";
import { useKeys } from "../keys";
import { Problem } from "../parts/Problem";
import { BatchBar } from "../runs/BatchBar";
import { Filters } from "../runs/Filters";
import { FirstSteps } from "../runs/FirstSteps";
import { RunTable } from "../runs/RunTable";
import { SavedViews } from "../runs/SavedViews";
import { filtersOf, isFiltered } from "../runs/filters";
import { count } from "../words";

const StatusChart = lazy(() => import("../runs/StatusChart"));

export function Runs() {
  const { query } = usePlace();
  const filters = filtersOf(query);
  const [version, setVersion] = useState(0);
  const { answer, error, isReading } = useAnswer("GET /api/v1/runs", { query: { ...filters, limit: 100 } }, version);
  const [more, setMore] = useState<{ of: string; items: RunItem[]; next: string }>();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [focus, setFocus] = useState(0);
  const isLive = useChanges(() => setVersion((number) => number + 1));
  const isLost = useIsLost();
  const key = query.toString();
  const further = more?.of === key ? more : undefined;

  const first = answer?.items ?? [];
  const seen = new Set(first.map((run) => run.id));
  const runs = [...first, ...(further?.items ?? []).filter((run) => !seen.has(run.id))];
  const next = further ? further.next : (answer?.next ?? "");
  const isWaiting = runs.some((run) => run.status === "waiting" || run.status === "running");
  const overview = useAnswer(isWaiting ? "GET /api/v1/overview" : null, { query: { limit: 200 } }, version);

  useEffect(() => setChosen(new Set()), [key]);

  const readOn = async (): Promise<void> => {
    const page = await ask("GET /api/v1/runs", { query: { ...filters, limit: 200, cursor: next } });
    setMore({ of: key, items: [...(further?.items ?? []), ...page.items], next: page.next ?? "" });
  };

  const open = (run: RunItem | undefined): void => run && goTo(addressTo(["runs", run.id]));
  useKeys([
    { keys: "/", does: "search", act: () => document.getElementById("search")?.focus() },
    { keys: "j", does: "next run", act: () => setFocus(Math.min(focus + 1, runs.length - 1)) },
    { keys: "k", does: "previous run", act: () => setFocus(Math.max(focus - 1, 0)) },
    { keys: "o", does: "open the run", act: () => open(runs[focus]) },
    {
      keys: "x",
      does: "select the run",
      act: () => {
        const run = runs[focus];
        if (run) setChosen((before) => toggled(before, run.id));
      },
    },
  ]);

  const isEmpty = answer !== undefined && runs.length === 0;
  return (
    <div className="runs">
      <div className="page-head">
        <h1>Runs</h1>
        <span className={isLive && !isLost ? "live" : "faint"} data-testid="live" role="status">
          {isLive && !isLost ? "live" : "not live"}
        </span>
        <SavedViews />
      </div>
      <Filters filters={filters} />
      <Problem error={error} />
      {isEmpty && !isFiltered(filters) ? (
        <FirstSteps />
      ) : (
        <>
          <Suspense fallback={<div className="chart-space" />}>
            <StatusChart filters={filters} version={version} />
          </Suspense>
          <BatchBar
            chosen={chosen}
            runs={runs}
            filters={filters}
            onDone={() => {
              setChosen(new Set());
              setVersion((number) => number + 1);
            }}
          />
          <RunTable
            runs={runs}
            reasons={reasonsOf(overview.answer)}
            chosen={chosen}
            canChoose={mayAsk("POST /api/v1/runs/{id}/cancel")}
            focus={focus}
            onFocus={setFocus}
            onChoose={setChosen}
          />
          {isEmpty && <p className="faint empty">No run matches these filters.</p>}
          <div className="table-foot">
            <span className="faint">{answer ? count(runs.length, "run") + (next ? ", and more" : "") : isReading ? "…" : ""}</span>
            {next && (
              <button type="button" data-testid="more-runs" onClick={() => void readOn()}>
                More
              </button>
            )}
          </div>
        </>
      )}
    </div>
  );
}

export function toggled(set: ReadonlySet<string>, id: string): Set<string> {
  const changed = new Set(set);
  if (!changed.delete(id)) changed.add(id);
  return changed;
}

/** Why open runs do not go on, by run. */
function reasonsOf(overview: Record<string, unknown> | undefined): Map<string, string> {
  const list = (overview?.["list"] ?? []) as { id: string; why?: string }[];
  return new Map(list.map((run) => [run.id, run.why ?? ""]));
}

/** Tells when some run has changed, at most twice a second; and whether the changes are followed now. */
function useChanges(onChange: () => void): boolean {
  const [isLive, setLive] = useState(false);
  const told = useRef(onChange);
  told.current = onChange;
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = (): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        told.current();
      }, 500);
    };
    void follow({
      address: (after) => `/api/v1/events${after ? `?after=${encodeURIComponent(after)}` : ""}`,
      after: "",
      onEvent: soon,
      onLive: (is) => {
        setLive(is);
        if (is) soon(); // the list is read again: what happened in between is in it
      },
      signal: stop.signal,
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, []);
  return isLive;
}

