import { useState } from "react";

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text).catch(() => undefined);
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return (
    <button type="button" className="quiet small" onClick={() => void copy()}>
      {isDone ? "Copied" : label}
    </button>
  );
}

/** A line to copy: a command, or a request. */
export function Line({ text, label, testId }: { text: string; label: string; testId?: string }) {
  return (
    <div className="line">
      <pre aria-label={label} data-testid={testId} tabIndex={0}>
        {text}
      </pre>
      <CopyButton text={text} />
    </div>
  );
}
