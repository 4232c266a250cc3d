// Keys: what is active is registered here, and `?` lists exactly that.
import { useEffect, useRef } from "react";
import { Dialog } from "./parts/Dialog";

export interface Key {
  keys: string; // one key, or two in a row: "g r"
  does: string;
  act(): void;
}

const active = new Set<{ current: Key[] }>();
let before = "";

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element?.closest?.("input, textarea, select, [contenteditable], .editor-host, dialog");
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const asked = before ? `${before} ${event.key}` : event.key;
  const keys = [...active].flatMap((each) => each.current).reverse();
  const found = keys.find((key) => key.keys === asked) ?? keys.find((key) => key.keys === event.key);
  before = "";
  if (found) {
    event.preventDefault();
    found.act();
  } else if (keys.some((key) => key.keys.startsWith(`${event.key} `))) {
    before = event.key;
    setTimeout(() => (before = ""), 1200);
  }
}

export function useKeys(keys: Key[]): void {
  const held = useRef(keys);
  held.current = keys;
  useEffect(() => {
    if (active.size === 0) window.addEventListener("keydown", onKey);
    active.add(held);
    return () => {
      active.delete(held);
      if (active.size === 0) window.removeEventListener("keydown", onKey);
    };
  }, []);
}

export function KeyHelp({ onClose }: { onClose(): void }) {
  const keys = [...active].flatMap((each) => each.current);
  return (
    <Dialog title="Keys" onClose={onClose} testId="key-help">
      <dl className="keys">
        {keys.map((key) => (
          <div key={key.keys}>
            <dt>
              {key.keys.split(" ").map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{key.does}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
