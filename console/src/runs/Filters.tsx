// Filters as chips. A chip is removed by its button; the address follows.
import { useEffect, useState, type FormEvent } from "react";
import { change } from "../address";
import { StatusIcon } from "../parts/Status";
import { LANGUAGES, STATUSES, type RunFilters } from "./filters";

export function Filters({ filters }: { filters: RunFilters }) {
  const chips = chipsOf(filters);
  return (
    <div className="filters">
      <Search text={filters.q ?? ""} />
      <select
        aria-label="Add a status"
        data-testid="add-status"
        value=""
        onChange={(event) => change({ status: [...new Set([...(filters.status ?? []), event.target.value])] })}
      >
        <option value="">+ status</option>
        {STATUSES.map((status) => (
          <option key={status} value={status}>
            {status.replace("_", " ")}
          </option>
        ))}
      </select>
      <select
        aria-label="Language"
        data-testid="add-language"
        value=""
        onChange={(event) => change({ language: event.target.value })}
      >
        <option value="">+ language</option>
        {LANGUAGES.map((language) => (
          <option key={language}>{language}</option>
        ))}
      </select>
      <WordFilter />
      <ul className="chips" aria-label="Filters">
        {chips.map((chip) => (
          <li key={chip.text} className="chip" data-testid="chip">
            {chip.status && <StatusIcon status={chip.status} />}
            {chip.text}
            <button type="button" className="quiet" aria-label={`Remove ${chip.text}`} onClick={chip.remove}>
              ✕
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Search({ text }: { text: string }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => change({ q: typed }, { replace: true }), 250);
    return () => clearTimeout(timer);
  }, [typed, text]);
  return (
    <input
      id="search"
      type="search"
      data-testid="search"
      placeholder="Search name, id, labels  ( / )"
      aria-label="Search name, id, labels"
      value={typed}
      onChange={(event) => setTyped(event.target.value)}
    />
  );
}

/** A name, a namespace, a label or a time, as `word:value`. */
function WordFilter() {
  const [text, setText] = useState("");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const [word = "", ...rest] = text.trim().split(":");
    const value = rest.join(":");
    if (!value) return;
    if (word === "label") change({ label: [value] });
    else if (word === "after") change({ started_after: value });
    else if (word === "before") change({ started_before: value });
    else if (word === "name" || word === "namespace") change({ [word]: value });
    else return;
    setText("");
  };
  return (
    <form onSubmit={submit}>
      <input
        list="filter-words"
        data-testid="add-filter"
        aria-label="Add a filter: name, namespace, label, after or before, a colon and a value"
        placeholder="name:… label:k=v after:1h"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <datalist id="filter-words">
        {["name:", "namespace:", "label:", "after:", "before:"].map((word) => (
          <option key={word} value={word} />
        ))}
      </datalist>
    </form>
  );
}

interface Chip {
  text: string;
  status?: string;
  remove(): void;
}

function chipsOf(filters: RunFilters): Chip[] {
  const statuses = (filters.status ?? []).map((status) => ({
    text: status.replace("_", " "),
    status,
    remove: () => change({ status: filters.status?.filter((each) => each !== status) ?? [] }),
  }));
  const labels = (filters.label ?? []).map((label) => ({
    text: `label ${label}`,
    remove: () => change({ label: filters.label?.filter((each) => each !== label) ?? [] }),
  }));
  const words = (["language", "name", "namespace", "started_after", "started_before"] as const)
    .filter((word) => filters[word])
    .map((word) => ({ text: `${word.replace("_", " ")} ${filters[word]}`, remove: () => change({ [word]: null }) }));
  return [...statuses, ...words, ...labels];
}
