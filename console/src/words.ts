// Times, durations and sizes as words.

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1000, "s"],
];

/** A duration in its two largest units. */
export function lasting(milliseconds: number): string {
  const length = Math.max(0, milliseconds);
  if (length < 1) return "0 ms";
  if (length < 1000) return `${Math.round(length)} ms`;
  if (length < 10_000) return `${(length / 1000).toFixed(1)} s`;
  const first = UNITS.findIndex(([size]) => length >= size);
  const [size, name] = UNITS[first] ?? [1000, "s"];
  const count = Math.floor(length / size);
  const next = UNITS[first + 1];
  const rest = next ? Math.floor((length - count * size) / next[0]) : 0;
  return next && rest > 0 ? `${count} ${name} ${rest} ${next[1]}` : `${count} ${name}`;
}

export function between(from: string | null | undefined, to: string | null | undefined, now: number): string {
  if (!from) return "";
  return lasting((to ? Date.parse(to) : now) - Date.parse(from));
}

export function ago(at: string, now: number): string {
  const distance = now - Date.parse(at);
  if (Math.abs(distance) < 1500) return "now";
  return distance >= 0 ? `${lasting(distance)} ago` : `in ${lasting(-distance)}`;
}

const LOCAL = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "short",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hour12: false,
});

export function localTime(at: string): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? at : LOCAL.format(date);
}

export function clockTime(at: string): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? at : CLOCK.format(date);
}

export function utcTime(at: string): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? at : `${date.toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} KB`;
  if (bytes < 1_000_000_000) return `${(bytes / 1_000_000).toFixed(1)} MB`;
  return `${(bytes / 1_000_000_000).toFixed(1)} GB`;
}

export function count(number: number, one: string, several = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : several}`;
}

/** A text for a line: without control characters, and cut where nobody reads on. */
export function oneLine(text: string, most = 300): string {
  const plain = text.slice(0, most).replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ");
  return text.length > most ? `${plain}…` : plain;
}
