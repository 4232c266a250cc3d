// The run at another moment: every view shows it as it was after that event. The address keeps the moment.
import { useEffect, useRef, useState } from "react";
import { change } from "../address";
import { eventName, eventTime, type RunEvent } from "../api/shapes";
import { useAnswer } from "../api/use";
import type { RunAnswer } from "../api/types";
import { clockTime, utcTime } from "../words";

const FRAME = 250; // milliseconds
const FRAMES = 150; // a whole run is played in so many steps at most

export function useEvent(id: string, seq: number | undefined): RunEvent | undefined {
  const { answer } = useAnswer<"GET /api/v1/runs/{id}/events", { items: RunEvent[] }>(
    seq === undefined ? null : "GET /api/v1/runs/{id}/events",
    { path: { id }, query: { after: (seq ?? 1) - 1, limit: 1 } },
  );
  return answer?.items[0];
}

export function Scrubber({ run, last, at }: { run: RunAnswer; last: number; at: number | undefined }) {
  const [moved, setMoved] = useState<number>();
  const [isPlaying, setPlaying] = useState(false);
  const event = useEvent(run.id, at);
  const shown = moved ?? at ?? last;
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  const goTo = (seq: number): void => {
    setMoved(seq);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      setMoved(undefined);
      change({ at: seq >= last ? null : Math.max(1, seq) }, { replace: true });
    }, 120);
  };

  useEffect(() => {
    if (!isPlaying) return;
    const step = Math.max(1, Math.ceil(last / FRAMES));
    const next = setTimeout(() => {
      const to = (at ?? 0) + step;
      if (to >= last) setPlaying(false);
      change({ at: to >= last ? null : to }, { replace: true });
    }, FRAME);
    return () => clearTimeout(next);
  }, [isPlaying, at, last]);

  if (last === 0) return <div className="scrubber" />;
  return (
    <div className={at ? "scrubber is-past" : "scrubber"} role="group" aria-label="Moment">
      <button
        type="button"
        className="quiet small"
        aria-label={isPlaying ? "Stop playing" : "Play forwards"}
        data-testid="play"
        onClick={() => {
          if (!isPlaying && at === undefined) change({ at: 1 }, { replace: true });
          setPlaying(!isPlaying);
        }}
      >
        {isPlaying ? "■" : "▶"}
      </button>
      <input
        type="range"
        min={1}
        max={last}
        value={shown}
        aria-label="Event"
        aria-valuetext={`event ${shown} of ${last}`}
        data-testid="scrubber"
        onChange={(change) => goTo(Number(change.target.value))}
      />
      <span className="number" data-testid="moment">
        <span className="faint">event</span> {shown.toLocaleString("en")} <span className="faint">of</span> {last.toLocaleString("en")}
      </span>
      {at !== undefined && (
        <>
          <span className="past" data-testid="past" title={event ? utcTime(eventTime(event)) : ""}>
            as it was after <code>{event ? eventName(event) : `event ${at}`}</code>
            {event ? `, ${clockTime(eventTime(event))}` : ""}
          </span>
          <button type="button" className="small" data-testid="to-now" onClick={() => change({ at: null })}>
            Back to now
          </button>
        </>
      )}
    </div>
  );
}
