// What went wrong, in the server's own words.
import { Refused } from "../api/client";

export function Problem({ error }: { error: Error | undefined }) {
  if (!error) return null;
  const refused = error instanceof Refused ? error : null;
  return (
    <div className="problem" role="alert">
      <strong>{error.message}</strong>
      {refused?.hint && <span> {refused.hint}</span>}
      {refused?.code && <code className="faint"> {refused.code}</code>}
      {refused && refused.problems.length > 0 && (
        <ul>
          {refused.problems.slice(0, 20).map((problem, index) => (
            <li key={index}>
              {problem["line"] ? `line ${String(problem["line"])}: ` : ""}
              {String(problem["message"] ?? "")}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
