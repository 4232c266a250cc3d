// Who did what to the run, from the audit log.
import { useAnswer } from "../api/use";
import { Problem } from "../parts/Problem";
import { Time } from "../parts/Time";
import { oneLine } from "../words";

interface Operation {
  id: string;
  at: string;
  who: { name: string; via: string };
  verb: string;
  outcome: string;
  count: number;
}

export function Operations({ id, version }: { id: string; version: number }) {
  const { answer, error } = useAnswer<"GET /api/v1/runs/{id}/operations", { items: Operation[] }>(
    "GET /api/v1/runs/{id}/operations",
    { path: { id }, query: { limit: 200 } },
    version,
  );
  return (
    <div className="scroll">
      <Problem error={error} />
      <table className="table" data-testid="operations">
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Who</th>
            <th scope="col">Did</th>
            <th scope="col">Outcome</th>
          </tr>
        </thead>
        <tbody>
          {answer?.items.map((item) => (
            <tr key={item.id}>
              <td>
                <Time at={item.at} absolute />
              </td>
              <td>
                {oneLine(item.who.name, 80)} <span className="faint">{item.who.via}</span>
              </td>
              <td>{item.verb.replaceAll("_", " ")}</td>
              <td>
                {item.outcome}
                {item.count > 1 ? ` × ${item.count}` : ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {answer?.items.length === 0 && <p className="faint empty">Nobody did anything to it through a server.</p>}
    </div>
  );
}
