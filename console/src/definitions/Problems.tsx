import type { Problem } from "../api/shapes";
import { StatusIcon } from "../parts/Status";
import { oneLine } from "../words";

export function Problems({ problems }: { problems: Problem[] }) {
  return (
    <ul className="problems" data-testid="problems" aria-live="polite">
      {problems.map((problem, index) => (
        <li key={index}>
          <StatusIcon status={problem.severity === "error" ? "failed" : "partial"} />
          <span>
            {problem.line ? <strong>line {problem.line}: </strong> : null}
            {oneLine(problem.message, 500)} {problem.hint && <span className="faint">{problem.hint} </span>}
            <code className="faint">{problem.code}</code>
          </span>
        </li>
      ))}
    </ul>
  );
}
