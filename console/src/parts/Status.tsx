// A status is a shape, a word and a colour; the shape alone is enough.
const SHAPES = {
  running: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2Zm-1.6 3.4v5.2L10.8 8Z",
  waiting: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2Zm-.7 2.6v3.8l2.9 1.7.7-1.2-2.2-1.3v-3Z",
  paused: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2ZM5.8 5.2v5.6h1.5V5.2Zm2.9 0v5.6h1.5V5.2Z",
  good: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2Zm2.6 3.6L7.2 9 5.5 7.4l-1 1 2.7 2.7 4.4-4.4Z",
  bad: "M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5Zm.1 3.9L7 8l-1.9 1.9 1 1L8 9l1.9 1.9 1-1L9 8l1.9-1.9-1-1L8 7 6.1 5.1Z",
  late: "M3.5 2h9v1.4c0 2-1.6 3.6-3.3 4.6 1.7 1 3.3 2.6 3.3 4.600V14h-9v-1.400c0-2 1.6-3.6 3.3-4.600C5.1 7 3.5 5.4 3.5 3.400Z",
  stopped: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2ZM4.8 7.200v1.600h6.400V7.200Z",
  partial: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2Zm0 1.500v9a4.5 4.5 0 0 0 0-9Z",
  skipped: "M2.5 4v8L8 8Zm5.5 0v8l5.5-4Z",
  none: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2Zm0 1.500a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9Z",
} as const;

export type Family = keyof typeof SHAPES;

const FAMILIES: Record<string, Family> = {
  running: "running",
  "at work": "running",
  open: "running",
  waiting: "waiting",
  waits: "waiting",
  "waits for its next try": "waiting",
  paused: "paused",
  succeeded: "good",
  done: "good",
  failed: "bad",
  stuck: "bad",
  "failed, caught": "partial",
  timed_out: "late",
  cancelled: "stopped",
  partial: "partial",
  skipped: "skipped",
};

export function familyOf(status: string | null | undefined): Family {
  return FAMILIES[status ?? ""] ?? "none";
}

export function statusWord(status: string | null | undefined): string {
  return (status ?? "not started").replace("_", " ");
}

export function StatusIcon({ status }: { status: string | null | undefined }) {
  const family = familyOf(status);
  return (
    <svg className={`status-icon is-${family}`} viewBox="0 0 16 16" aria-hidden="true">
      <path d={SHAPES[family]} fillRule="evenodd" />
    </svg>
  );
}

export function Status({ status }: { status: string | null | undefined }) {
  return (
    <span className="status">
      <StatusIcon status={status} />
      <span className={`is-${familyOf(status)}`}>{statusWord(status)}</span>
    </span>
  );
}
