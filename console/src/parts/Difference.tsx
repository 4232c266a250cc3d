// Two texts line by line: what is gone has a minus, what is new has a plus.
import { useMemo } from "react";
import { compareLines, type Change } from "./lines";

export function Difference({ one, other, label }: { one: string; other: string; label: string }) {
  const changes = useMemo(() => compareLines(one, other), [one, other]);
  const isSame = changes.every((change) => change.kind === " ");
  if (isSame) return <p className="faint padded">The same.</p>;
  return (
    <pre className="difference" aria-label={label} tabIndex={0} data-testid="difference">
      {nearby(changes).map((change, index) => (
        <span key={index} className={CLASSES[change.kind]}>
          {change.kind} {change.text}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

const CLASSES: Record<Change["kind"], string> = { "+": "is-new", "-": "is-gone", " ": "", "…": "faint" };
const AROUND = 3;

/** Lines that changed, with a few around them. */
function nearby(changes: Change[]): Change[] {
  const isNear = changes.map((_, at) => changes.slice(Math.max(0, at - AROUND), at + AROUND + 1).some((each) => each.kind !== " "));
  const shown: Change[] = [];
  changes.forEach((change, at) => {
    if (isNear[at]) shown.push(change);
    else if (shown.at(-1)?.kind !== "…") shown.push({ kind: "…", text: "" });
  });
  return shown;
}
