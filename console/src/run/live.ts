// The events of a run as they are recorded: how many there are, and when what is shown is to be read again.
import { useEffect, useRef, useState } from "react";
import { ask } from "../api/client";
import { follow } from "../api/live";

export interface RunEvents {
  last: number; // the number of the latest event
  version: number; // changes when the run has
  isLive: boolean;
  forkedFrom: string;
}

const TOGETHER = 200; // milliseconds: events that come at once are read once

export function useRunEvents(id: string, acts: number): RunEvents {
  const [last, setLast] = useState(0);
  const [version, setVersion] = useState(0);
  const [isLive, setLive] = useState(false);
  const [forkedFrom, setForkedFrom] = useState("");
  const seen = useRef(0);

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = (): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        setLast(seen.current);
        setVersion((number) => number + 1);
      }, TOGETHER);
    };
    const begin = async (): Promise<void> => {
      const status = (await ask("GET /api/v1/runs/{id}/status", { path: { id }, signal: stop.signal })) as {
        last_seq: number;
        forked_from: string | null;
      };
      seen.current = status.last_seq;
      setLast(status.last_seq);
      setForkedFrom(typeof status.forked_from === "string" ? status.forked_from : "");
      if (acts > 0) soon();
      await follow({
        address: (after) => `/api/v1/runs/${encodeURIComponent(id)}/events?after=${after}`,
        after: String(status.last_seq),
        onEvent: (event) => {
          seen.current = Math.max(seen.current, Number(event.id) || 0);
          soon();
        },
        onLive: setLive,
        signal: stop.signal,
      });
      if (!stop.signal.aborted) soon();
    };
    begin().catch(() => undefined);
    return () => {
      stop.abort();
      clearTimeout(timer);
      setLive(false);
    };
  }, [id, acts]);
  return { last, version, isLive, forkedFrom };
}
