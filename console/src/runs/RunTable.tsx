import { useEffect, useRef } from "react";
import { addressTo } from "../address";
import type { RunItem } from "../api/types";
import { Status } from "../parts/Status";
import { Lasted, Time } from "../parts/Time";
import { oneLine } from "../words";

interface Props {
  runs: RunItem[];
  reasons: Map<string, string>;
  chosen: ReadonlySet<string>;
  canChoose: boolean;
  focus: number;
  onFocus(index: number): void;
  onChoose(chosen: Set<string>): void;
}

export function RunTable({ runs, reasons, chosen, canChoose, focus, onFocus, onChoose }: Props) {
  const all = runs.length > 0 && runs.every((run) => chosen.has(run.id));
  const body = useRef<HTMLTableSectionElement>(null);
  const moved = useRef(false);
  useEffect(() => {
    if (!moved.current) {
      moved.current = true; // the page keeps its place until a key moves
      return;
    }
    body.current?.querySelectorAll<HTMLElement>("a.run-name")[focus]?.focus();
  }, [focus]);

  return (
    <table className="table run-table" data-testid="runs">
      <thead>
        <tr>
          {canChoose && (
            <th scope="col" className="narrow">
              <input
                type="checkbox"
                aria-label="Select all runs of this page"
                checked={all}
                onChange={() => onChoose(all ? new Set() : new Set(runs.map((run) => run.id)))}
              />
            </th>
          )}
          <th scope="col">Status</th>
          <th scope="col">Name</th>
          <th scope="col">Language</th>
          <th scope="col">Namespace</th>
          <th scope="col">Started</th>
          <th scope="col">Lasted</th>
          <th scope="col">Waits for</th>
        </tr>
      </thead>
      <tbody ref={body}>
        {runs.map((run, index) => (
          <tr key={run.id} data-testid="run-row" className={index === focus ? "is-focus" : ""} onFocus={() => onFocus(index)}>
            {canChoose && (
              <td className="narrow">
                <input
                  type="checkbox"
                  aria-label={`Select ${oneLine(run.name, 60)}`}
                  checked={chosen.has(run.id)}
                  onChange={() => {
                    const changed = new Set(chosen);
                    if (!changed.delete(run.id)) changed.add(run.id);
                    onChoose(changed);
                  }}
                />
              </td>
            )}
            <td className="cell-status">
              <Status status={run.status} />
            </td>
            <td className="cell-name">
              <a className="run-name" href={addressTo(["runs", run.id])}>
                <bdi>{oneLine(run.name, 120)}</bdi>
              </a>{" "}
              <span className="faint mono">{run.id.slice(0, 10)}</span>
              {Object.entries(run.labels)
                .filter(([name]) => !name.includes("bubustack.io/"))
                .slice(0, 3)
                .map(([name, value]) => (
                  <span key={name} className="tag">
                    {oneLine(`${name}=${value}`, 40)}
                  </span>
                ))}
            </td>
            <td>{run.language}</td>
            <td>{run.namespace}</td>
            <td className="number">
              <Time at={run.started_at} />
            </td>
            <td className="number">
              <Lasted from={run.started_at} to={run.ended_at} />
            </td>
            <td className="cell-why">{oneLine(reasons.get(run.id) ?? "", 160)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
