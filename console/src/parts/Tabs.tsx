// Views of the same thing. The arrow keys move between them, as in every tab list.
import { useEffect, type KeyboardEvent, type ReactNode } from "react";

interface Props<T extends string> {
  label: string;
  tabs: { id: T; title: ReactNode }[];
  chosen: T;
  onChoose(id: T): void;
}

export function Tabs<T extends string>({ label, tabs, chosen, onChoose }: Props<T>) {
  const move = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    onChoose(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  useEffect(() => {
    void document.getElementById(`tab-${chosen}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen]);
  return (
    <div className="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          id={`tab-${tab.id}`}
          type="button"
          role="tab"
          data-testid={`tab-${tab.id}`}
          aria-selected={tab.id === chosen}
          tabIndex={tab.id === chosen ? 0 : -1}
          onClick={() => onChoose(tab.id)}
        >
          {tab.title}
        </button>
      ))}
    </div>
  );
}
