// Filters under a name, kept by this browser.
import { useState, type FormEvent } from "react";
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
  const [name, setName] = useState<string>(); // while one is given
  const save = (event: FormEvent): void => {
    event.preventDefault();
    const given = name?.trim();
    if (given) keep([...views.filter((view) => view.name !== given), { name: given, query: text }]);
    setName(undefined);
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
      {text && !current &&
        (name === undefined ? (
          <button type="button" className="quiet small" data-testid="save-view" onClick={() => setName(query.getAll("status").join(" "))}>
            Save this view
          </button>
        ) : (
          <form className="saved" onSubmit={save} onKeyDown={(event) => event.key === "Escape" && setName(undefined)}>
            <input
              aria-label="Name of this view"
              placeholder="name of this view"
              data-testid="view-name"
              autoFocus
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
            <button type="submit" className="small" disabled={!name.trim()}>
              Save
            </button>
          </form>
        ))}
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
