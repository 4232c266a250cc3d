// Answers of the API in components: what was read before is shown at once, and read again when it may have changed.
import { useCallback, useEffect, useRef, useState } from "react";
import { addressOf, ask, Unreachable } from "./client";
import { useReturns } from "./connection";
import type { Routes } from "./types";

export interface Read<T> {
  answer: T | undefined;
  error: Error | undefined;
  isReading: boolean;
  refresh(): void;
}

const known = new Map<string, unknown>();
const KEPT = 60;

function keep(key: string, answer: unknown): void {
  known.delete(key);
  known.set(key, answer);
  if (known.size > KEPT) known.delete(known.keys().next().value as string);
}

/** Reads something under a key; null reads nothing. A change of `version` reads it again and shows the old meanwhile. */
export function useRead<T>(key: string | null, read: (signal: AbortSignal) => Promise<T>, version: unknown = 0): Read<T> {
  const [shown, setShown] = useState<{ key: string | null; answer?: T; error?: Error }>({ key: null });
  const [isReading, setReading] = useState(false);
  const [asked, setAsked] = useState(0);
  const returns = useReturns();
  const reader = useRef(read);
  reader.current = read;

  useEffect(() => {
    if (key === null) return;
    const stop = new AbortController();
    setReading(true);
    reader
      .current(stop.signal)
      .then((answer) => {
        keep(key, answer);
        if (!stop.signal.aborted) setShown({ key, answer });
      })
      .catch((error: Error) => {
        if (stop.signal.aborted) return;
        // What was there is still the latest that is known; the banner says that the server is away.
        setShown((before) => (error instanceof Unreachable && before.key === key ? before : { key, error }));
      })
      .finally(() => !stop.signal.aborted && setReading(false));
    return () => stop.abort();
  }, [key, version, asked, returns]);

  const refresh = useCallback(() => setAsked((count) => count + 1), []);
  const isCurrent = shown.key === key && key !== null;
  const answer = isCurrent ? shown.answer : key === null ? undefined : (known.get(key) as T | undefined);
  return { answer, error: isCurrent ? shown.error : undefined, isReading, refresh };
}

interface Asked<K extends keyof Routes> {
  path?: Record<string, string>;
  query?: Routes[K]["query"];
}

/** The answer of a GET route; null asks nothing. */
export function useAnswer<K extends keyof Routes, T = Routes[K]["answer"]>(
  route: K | null,
  asked: Asked<K> = {},
  version: unknown = 0,
): Read<T> {
  const key = route === null ? null : addressOf(route, asked.path, asked.query);
  return useRead<T>(key, (signal) => ask(route as K, { ...asked, signal }) as Promise<T>, version);
}

/** Counts up every so many milliseconds while the page is looked at. */
export function useTicks(milliseconds: number): number {
  const [ticks, setTicks] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setTicks((count) => count + 1), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
  return ticks;
}

/** Whether the window has room for two things beside each other. */
export function useWide(pixels: number): boolean {
  const rule = `(width >= ${pixels}px)`;
  const [isWide, setWide] = useState(() => window.matchMedia(rule).matches);
  useEffect(() => {
    const watched = window.matchMedia(rule);
    const look = (): void => setWide(watched.matches);
    watched.addEventListener("change", look);
    look();
    return () => watched.removeEventListener("change", look);
  }, [rule]);
  return isWide;
}
