// Rows of whatever the server says: a column for each member.
import type { ReactNode } from "react";
import type { Json } from "../api/types";
import { Time } from "../parts/Time";
import { oneLine } from "../words";

export type Row = Record<string, Json>;

export function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="card" aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

interface Props {
  rows: Row[];
  empty: string;
  label: string;
  columns?: string[];
  /** A last cell for each row. */
  act?(row: Row): ReactNode;
}

export function Table({ rows, empty, label, columns: chosen, act }: Props) {
  if (rows.length === 0) return <p className="faint">{empty}</p>;
  const columns = chosen ?? [...new Set(rows.slice(0, 50).flatMap((row) => Object.keys(row).filter((name) => textOf(row[name]))))].slice(0, 8);
  return (
    <div className="wide" tabIndex={0} role="region" aria-label={label}>
      <table className="table">
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" key={column}>
                {titleOf(column)}
              </th>
            ))}
            {act && (
              <th scope="col">
                <span className="unseen">actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, 100).map((row, index) => (
            <tr key={index}>
              {columns.map((column) => (
                <td key={column} className={isLong(row[column]) ? "is-text" : undefined}>
                  <Cell value={row[column]} />
                </td>
              ))}
              {act && <td className="act">{act(row)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function titleOf(column: string): string {
  const words = column.replaceAll("_", " ");
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}

const LONG = 24; // characters: longer texts may be broken into lines

function isLong(value: Json | undefined): boolean {
  return !isTime(value) && textOf(value).length > LONG;
}

function isTime(value: Json | undefined): value is string {
  return typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value);
}

function isUnset(value: Json): boolean {
  return isTime(value) && value.startsWith("1970");
}

function textOf(value: Json | undefined): string {
  if (value === null || value === undefined || isUnset(value)) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return oneLine(String(value), 160);
  if (Array.isArray(value)) return oneLine(value.map((each) => (typeof each === "object" ? JSON.stringify(each) : String(each))).join(", "), 120);
  return oneLine(typeof value["name"] === "string" ? value["name"] : JSON.stringify(value), 80);
}

function Cell({ value }: { value: Json | undefined }) {
  if (isTime(value) && !isUnset(value)) return <Time at={value} />;
  return <>{textOf(value)}</>;
}
