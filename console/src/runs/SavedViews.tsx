// Filters under a name, kept by this browser.
import { useState } from "react";
import { goTo, usePlace } from "../address";

const KEY = "perdure.views";

interface SavedView {
  name: string;
  query: string;
}

function read(): SavedView[] {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]") as SavedView[];
  } catch {
    return [];
  }
}

export function SavedViews() {
  const { query } = usePlace();
  const [views, setViews] = useState(read);
  const keep = (changed: SavedView[]): void => {
    localStorage.setItem(KEY, JSON.stringify(changed));
    setViews(changed);
  };
  const text = query.toString();
  const current = views.find((view) => view.query === text);
  const save = (): void => {
    const name = window.prompt("Name of this view", query.getAll("status").join(" ") || "view")?.trim();
    if (name) keep([...views.filter((view) => view.name !== name), { name, query: text }]);
  };
  return (
    <div className="saved">
      {views.length > 0 && (
        <select
          aria-label="Saved views"
          data-testid="saved-views"
          value={current?.name ?? ""}
          onChange={(event) => {
            const view = views.find((each) => each.name === event.target.value);
            if (view) goTo(`#/runs?${view.query}`);
          }}
        >
          <option value="">Saved views</option>
          {views.map((view) => (
            <option key={view.name}>{view.name}</option>
          ))}
        </select>
      )}
      {text && !current && (
        <button type="button" className="quiet small" data-testid="save-view" onClick={save}>
          Save this view
        </button>
      )}
      {current && (
        <button
          type="button"
          className="quiet small"
          onClick={() => keep(views.filter((view) => view.name !== current.name))}
        >
          Forget “{current.name}”
        </button>
      )}
    </div>
  );
}
