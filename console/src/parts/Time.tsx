// A moment: relative or absolute in the reader's zone, UTC on hover.
import { useSyncExternalStore } from "react";
import { ago, between, localTime, utcTime } from "../words";

const listeners = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  if (listeners.size === 0) now = Date.now(); // nobody has asked for a while
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    listeners.forEach((each) => each());
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time, once a second, shared by everything that counts. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

export function Time({ at, absolute = false }: { at: string; absolute?: boolean }) {
  const moment = useNow();
  return (
    <time dateTime={at} title={`${localTime(at)} · ${utcTime(at)}`}>
      {absolute ? localTime(at) : ago(at, moment)}
    </time>
  );
}

/** How long something took, or takes until now. */
export function Lasted({ from, to }: { from: string | null | undefined; to: string | null | undefined }) {
  const moment = useNow();
  return <span className="number">{between(from, to, moment)}</span>;
}
