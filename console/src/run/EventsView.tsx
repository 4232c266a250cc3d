// The history. Only events in sight are read and drawn; a filter reads on until it has found enough.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { ask } from "../api/client";
import { eventName, eventStep, eventTime, type RunEvent } from "../api/shapes";
import type { Json } from "../api/types";
import { JsonView } from "../parts/JsonView";
import { VirtualList } from "../parts/VirtualList";
import { clockTime, count, oneLine, utcTime } from "../words";
import type { Shared } from "./selection";

const PAGE = 500;
const ENOUGH = 200;
const ROW = 26;

export function EventsView({ run, at, selected, steps, onSelect, last }: Shared & { last: number }) {
  const [filter, setFilter] = useState("");
  const [opened, setOpened] = useState<RunEvent>();
  const pages = usePages(run.id);
  const total = at ?? last;
  const search = filter.trim().toLowerCase() || (selected ? " " : "");
  return (
    <div className="events" data-testid="events">
      <div className="events-tools">
        <input
          type="search"
          aria-label="Filter events"
          data-testid="filter-events"
          placeholder={selected ? `Filter events of ${oneLine(selected, 40)}` : "Filter events"}
          value={filter}
          onChange={(event) => setFilter(event.target.value)}
        />
        <span className="faint number">{count(total, "event")}</span>
      </div>
      {search ? (
        <Found
          run={run.id}
          words={filter.trim().toLowerCase()}
          step={selected ? (steps.find((each) => each.step === selected)?.name ?? selected) : ""}
          total={total}
          pages={pages}
          onOpen={setOpened}
        />
      ) : (
        <VirtualList
          length={total}
          rowHeight={ROW}
          label="Events"
          testId="event-list"
          focus={at === undefined ? undefined : at - 1}
          onSeen={pages.need}
          row={(index) => <Row seq={index + 1} event={pages.get(index + 1)} onOpen={setOpened} />}
        />
      )}
      {opened && (
        <aside className="event-json" aria-label={`Event ${opened.seq}`} data-testid="event-json">
          <header>
            <strong>
              {opened.seq} {eventName(opened)}
            </strong>
            {eventStep(opened) && (
              <button type="button" className="quiet small" onClick={() => onSelect(eventStep(opened))}>
                step {oneLine(eventStep(opened), 40)}
              </button>
            )}
            <button type="button" className="quiet small" aria-label="Close the event" onClick={() => setOpened(undefined)}>
              ✕
            </button>
          </header>
          <JsonView value={opened as Json} label={`event-${opened.seq}`} run={run.id} />
        </aside>
      )}
    </div>
  );
}

function Row({ seq, event, onOpen }: { seq: number; event: RunEvent | undefined; onOpen(event: RunEvent): void }) {
  if (!event) return <span className="event-row faint">{seq}</span>;
  return (
    <button type="button" className="event-row" data-testid="event" onClick={() => onOpen(event)}>
      <span className="event-seq number">{event.seq}</span>
      <span className="event-time number" title={utcTime(eventTime(event))}>
        {clockTime(eventTime(event))}
      </span>
      <span className="event-name">{oneLine(eventName(event), 60)}</span>
      <span className="event-step">{oneLine(eventStep(event), 60)}</span>
      <span className="event-more faint">{oneLine(summary(event), 160)}</span>
    </button>
  );
}

function summary(event: RunEvent): string {
  const payload = event["payload"];
  if (payload && typeof payload === "object") return JSON.stringify(payload).slice(0, 200);
  const { seq: _, at: __, event: ___, ...rest } = event;
  return JSON.stringify(rest).slice(0, 200);
}

interface Pages {
  get(seq: number): RunEvent | undefined;
  need(first: number, last: number): void;
  read(page: number): Promise<RunEvent[]>;
}

/** Pages of the history that have been read. */
function usePages(id: string): Pages {
  const [, setCount] = useState(0);
  const events = useRef(new Map<number, RunEvent>());
  const asked = useRef(new Map<number, Promise<RunEvent[]>>());

  const read = useCallback(
    (page: number): Promise<RunEvent[]> => {
      const known = asked.current.get(page);
      if (known) return known;
      const reading = ask("GET /api/v1/runs/{id}/events", { path: { id }, query: { after: page * PAGE, limit: PAGE } }).then(
        (answer) => {
          const items = (answer as unknown as { items: RunEvent[] }).items;
          for (const event of items) events.current.set(event.seq, event);
          if (items.length < PAGE) asked.current.delete(page); // it grows
          setCount((number) => number + 1);
          return items;
        },
      );
      reading.catch(() => asked.current.delete(page));
      asked.current.set(page, reading);
      return reading;
    },
    [id],
  );
  const need = useCallback(
    (first: number, last: number): void => {
      for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, last - 1) / PAGE); page += 1) {
        const isThere = events.current.has(Math.min((page + 1) * PAGE, last)) && events.current.has(Math.max(first, page * PAGE) + 1);
        if (!isThere) read(page).catch(() => undefined);
      }
    },
    [read],
  );
  return useMemo(() => ({ get: (seq) => events.current.get(seq), need, read }), [need, read]);
}

interface FoundProps {
  run: string;
  words: string;
  step: string;
  total: number;
  pages: Pages;
  onOpen(event: RunEvent): void;
}

function Found({ words, step, total, pages, onOpen }: FoundProps) {
  const [found, setFound] = useState<RunEvent[]>([]);
  const [searched, setSearched] = useState(0);
  const [limit, setLimit] = useState(ENOUGH);
  useEffect(() => {
    let isWanted = true;
    const search = async (): Promise<void> => {
      const matching: RunEvent[] = [];
      for (let page = 0; page * PAGE < total && matching.length < limit && isWanted; page += 1) {
        for (const event of await pages.read(page)) {
          if (event.seq <= total && fits(event, words, step)) matching.push(event);
        }
        if (isWanted) {
          setFound([...matching]);
          setSearched(Math.min(total, (page + 1) * PAGE));
        }
      }
    };
    const timer = setTimeout(() => void search().catch(() => undefined), 150);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [words, step, total, limit, pages]);
  return (
    <>
      <p className="faint events-found" role="status">
        {count(found.length, "event")} found {searched < total ? `in the first ${searched.toLocaleString("en")} of` : "of"} {total.toLocaleString("en")}
        {searched < total && found.length >= limit && (
          <button type="button" className="quiet small" onClick={() => setLimit(limit + ENOUGH * 5)}>
            Search on
          </button>
        )}
      </p>
      <VirtualList
        length={found.length}
        rowHeight={ROW}
        label="Events found"
        testId="event-list"
        row={(index) => {
          const event = found[index];
          return event ? <Row seq={event.seq} event={event} onOpen={onOpen} /> : null;
        }}
      />
    </>
  );
}

function fits(event: RunEvent, words: string, step: string): boolean {
  if (step && eventStep(event) !== step && eventStep(event) !== step.split("/").at(-1)) return false;
  return !words || JSON.stringify(event).slice(0, 100_000).toLowerCase().includes(words);
}
