// Whether the server answers. While it does not, one request after the other asks for it, and nothing is shown as live.
import { useSyncExternalStore } from "react";

type Listener = () => void;
const listeners = new Set<Listener>();
const state = { isLost: false, returns: 0 };

function tell(): void {
  for (const listener of [...listeners]) listener();
}

export function lost(): void {
  if (state.isLost) return;
  state.isLost = true;
  tell();
  void untilItAnswers();
}

async function untilItAnswers(): Promise<void> {
  for (let wait = 250; ; wait = Math.min(wait * 1.6, 4000)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    try {
      const answer = await fetch("/livez", { cache: "no-store" });
      if (answer.ok) break;
    } catch {
      continue;
    }
  }
  state.isLost = false;
  state.returns += 1;
  tell();
}

function subscribe(listener: Listener): Listener {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useIsLost(): boolean {
  return useSyncExternalStore(subscribe, () => state.isLost);
}

/** How often the server has come back: what was read before is read again. */
export function useReturns(): number {
  return useSyncExternalStore(subscribe, () => state.returns);
}

export async function untilConnected(): Promise<void> {
  while (state.isLost) await new Promise<void>((resolve) => void once(resolve));
}

function once(resolve: () => void): void {
  const end = subscribe(() => {
    end();
    resolve();
  });
}
