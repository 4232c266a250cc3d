// What is wrong with a document. A click shows its line; a finding shows its example in the graph.
import { StatusIcon } from "../parts/Status";
import { oneLine } from "../words";
import type { Finding, Listed } from "./checked";

interface Props {
  problems: Listed[];
  onLine?(line: number): void;
  shown?: Finding;
  onExample?(finding: Finding | undefined): void;
}

export function Problems({ problems, onLine, shown, onExample }: Props) {
  if (problems.length === 0) return null;
  return (
    <ul className="problems" data-testid="problems" aria-live="polite">
      {problems.slice(0, 200).map((problem, index) => (
        <li key={index}>
          <StatusIcon status={problem.severity === "error" ? "failed" : "partial"} />
          <span>
            {problem.line ? (
              <button type="button" className="quiet small at-line" data-testid="to-line" disabled={!onLine} onClick={() => onLine?.(problem.line ?? 1)}>
                line {problem.line}
              </button>
            ) : null}{" "}
            {oneLine(problem.message, 500)} {problem.hint && <span className="faint">{oneLine(problem.hint, 300)} </span>}
            <code className="faint">{problem.code}</code>
            {problem.finding && <Example finding={problem.finding} isShown={shown === problem.finding} onExample={onExample} />}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Example({ finding, isShown, onExample }: { finding: Finding; isShown: boolean; onExample: Props["onExample"] }) {
  if (!onExample || finding.trace.length === 0) return null;
  return (
    <>
      <button type="button" className="small example-button" aria-pressed={isShown} data-testid="example" onClick={() => onExample(isShown ? undefined : finding)}>
        {isShown ? "Hide the example" : "Show an example"}
      </button>
      {isShown && (
        <ol className="example" data-testid="example-steps">
          {finding.trace.slice(0, 100).map(({ step, choice }, index) => (
            <li key={index}>
              <strong>{oneLine(step, 80)}</strong> {oneLine(choice, 120)}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
