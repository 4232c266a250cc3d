// What of all runs is listed, as the address says it.

export interface RunFilters {
  status?: string[];
  language?: string;
  name?: string;
  namespace?: string;
  label?: string[];
  started_after?: string;
  started_before?: string;
  q?: string;
}

export const STATUSES = ["running", "waiting", "paused", "succeeded", "failed", "cancelled", "timed_out", "partial"];
export const LANGUAGES = ["flow", "playbook", "story"];
const WORDS = ["language", "name", "namespace", "started_after", "started_before", "q"] as const;

export function filtersOf(query: URLSearchParams): RunFilters {
  const filters: RunFilters = {};
  if (query.has("status")) filters.status = query.getAll("status");
  if (query.has("label")) filters.label = query.getAll("label");
  for (const word of WORDS) {
    const value = query.get(word);
    if (value) filters[word] = value;
  }
  return filters;
}

export function isFiltered(filters: RunFilters): boolean {
  return Object.keys(filters).length > 0;
}
