// A value as a tree. Everything is text; long strings and lists are shown in parts, so that nothing stops the page.
import { useState } from "react";
import { digitsOf } from "../api/client";
import { ask } from "../api/client";
import type { Json } from "../api/types";
import { count, size } from "../words";
import { CopyButton } from "./Copy";

const LONG_TEXT = 600;
const MANY = 100;

interface Props {
  value: Json | undefined;
  label: string;
  /** The run that keeps large values. */
  run?: string;
  open?: number;
}

export function JsonView({ value, label, run, open = 2 }: Props) {
  if (value === undefined) return <p className="faint">nothing</p>;
  return (
    <div className="json" role="group" aria-label={label}>
      <div className="json-tools">
        <CopyAll value={value} />
        <button type="button" className="quiet small" onClick={() => downloadJson(value, label)}>
          Download
        </button>
      </div>
      <div className="json-tree">
        <Value value={value} depth={0} open={open} run={run} />
      </div>
    </div>
  );
}

function CopyAll({ value }: { value: Json }) {
  return <CopyButton text={textOf(value)} />;
}

function textOf(value: Json): string {
  return JSON.stringify(value, null, 2);
}

export function downloadJson(value: Json, label: string): void {
  const name = `${label.replace(/[^\w.-]+/g, "-").slice(0, 60) || "value"}.json`;
  saveFile(new Blob([textOf(value)], { type: "application/json" }), name);
}

export function saveFile(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

interface Part {
  value: Json;
  depth: number;
  open: number;
  run?: string;
}

function Value({ value, depth, open, run }: Part) {
  const digits = digitsOf(value);
  if (digits !== null) return <span className="json-number">{digits}</span>;
  if (value === null) return <span className="json-null">null</span>;
  if (typeof value === "string") return <Text text={value} />;
  if (typeof value !== "object") return <span className="json-number">{String(value)}</span>;
  const large = largeOf(value);
  if (large && run) return <Large run={run} digest={large.digest} bytes={large.bytes} depth={depth} />;
  return <Container value={value} depth={depth} open={open} run={run} />;
}

function Text({ text }: { text: string }) {
  const [shown, setShown] = useState(LONG_TEXT);
  // JSON.stringify makes control characters visible; marks of writing direction are kept apart from what follows.
  return (
    <span className="json-text">
      <bdi>{JSON.stringify(text.slice(0, shown))}</bdi>
      {text.length > shown && (
        <button type="button" className="quiet small" onClick={() => setShown(shown * 10)}>
          … {size(text.length - shown)} more
        </button>
      )}
    </span>
  );
}

function Container({ value, depth, open, run }: Part & { value: Json[] | { [name: string]: Json } }) {
  const isList = Array.isArray(value);
  const length = isList ? value.length : Object.keys(value).length;
  const [isOpen, setOpen] = useState(depth < open && length <= MANY);
  const [shown, setShown] = useState(MANY);
  if (length === 0) return <span className="json-null">{isList ? "[]" : "{}"}</span>;
  const summary = isList ? `[${count(length, "item")}]` : `{${count(length, "member")}}`;
  return (
    <span className="json-container">
      <button
        type="button"
        className="json-fold"
        aria-expanded={isOpen}
        aria-label={`${isOpen ? "fold" : "unfold"} ${summary}`}
        onClick={() => setOpen(!isOpen)}
      >
        {isOpen ? "▾" : "▸"} <span className="faint">{summary}</span>
      </button>
      {isOpen && (
        <ul>
          {membersOf(value, shown).map(([name, member]) => (
            <li key={name}>
              <bdi className="json-name">{isList ? name : JSON.stringify(name).slice(1, -1)}</bdi>:{" "}
              <Value value={member} depth={depth + 1} open={open} run={run} />
            </li>
          ))}
          {length > shown && (
            <li>
              <button type="button" className="quiet small" onClick={() => setShown(shown + MANY * 5)}>
                {count(length - shown, "more", "more")}
              </button>
            </li>
          )}
        </ul>
      )}
    </span>
  );
}

function membersOf(value: Json[] | { [name: string]: Json }, most: number): [string, Json][] {
  if (Array.isArray(value)) return value.slice(0, most).map((item, index) => [String(index), item]);
  return Object.keys(value)
    .slice(0, most)
    .map((name) => [name, value[name] as Json]);
}

function largeOf(value: Json[] | { [name: string]: Json }): { digest: string; bytes: number } | null {
  if (Array.isArray(value)) return null;
  if (typeof value["$large"] === "string") return { digest: value["$large"], bytes: Number(value["bytes"] ?? 0) };
  const meta = value["kind"] === "result_ref" && value["store"] === "eventlog" ? value["meta"] : null; // in Playbooks
  if (!meta || typeof meta !== "object" || Array.isArray(meta) || typeof meta["sha256"] !== "string") return null;
  return { digest: meta["sha256"], bytes: Number(meta["bytes"] ?? 0) };
}

/** A value that is kept beside the history: it comes on request. */
function Large({ run, digest, bytes, depth }: { run: string; digest: string; bytes: number; depth: number }) {
  const [value, setValue] = useState<Json>();
  const [problem, setProblem] = useState("");
  if (value !== undefined) return <Value value={value} depth={depth} open={0} run={run} />;
  const fetchIt = (): void => {
    ask("GET /api/v1/runs/{id}/values/{digest}", { path: { id: run, digest } }).then(setValue, (error: Error) =>
      setProblem(error.message),
    );
  };
  return (
    <span>
      <button type="button" className="small" onClick={fetchIt}>
        Fetch {size(bytes)}
      </button>{" "}
      <span className="faint">{problem || "a large value"}</span>
    </span>
  );
}
