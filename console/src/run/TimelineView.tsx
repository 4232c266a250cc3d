// The run over time: a row for each visit of a step, attempts as bars, waits hatched. Dragging over the axis zooms.
import { useRef, useState, type PointerEvent, type ReactNode } from "react";
import type { Timeline, TimelineStep } from "../api/shapes";
import { useAnswer } from "../api/use";
import { Problem } from "../parts/Problem";
import { familyOf, StatusIcon, statusWord } from "../parts/Status";
import { useNow } from "../parts/Time";
import { VirtualList } from "../parts/VirtualList";
import { clockTime, lasting, oneLine } from "../words";
import { isSelected, nameOfNode, type Shared } from "./selection";

const ALIKE = 12; // visits of a node that have rows of their own; the server tells of the rest as one

export function TimelineView({ run, steps, at, version, selected, onSelect }: Shared) {
  const [isWhole, setWhole] = useState(false);
  const { answer, error } = useAnswer<"GET /api/v1/runs/{id}/timeline", Timeline>(
    "GET /api/v1/runs/{id}/timeline",
    { path: { id: run.id }, query: { at: at?.toString(), alike: isWhole ? undefined : ALIKE } },
    version,
  );
  const [window, setWindow] = useState<[number, number]>();
  const now = useNow();
  if (error) return <Problem error={error} />;
  if (!answer) return <p className="loading">…</p>;
  const begin = Date.parse(answer.started_at);
  const end = Math.max(begin + 1, answer.ended_at && at === undefined ? Date.parse(answer.ended_at) : latest(answer, at ? begin : now));
  const [from, to] = window ?? [begin, end];
  const rows = answer.steps;
  const hidden = answer.visits - rows.length;
  return (
    <div className="timeline" data-testid="timeline">
      <Axis begin={begin} from={from} to={to} onZoom={setWindow}>
        <button type="button" className="small" aria-label="Zoom in" data-testid="zoom-in" onClick={() => setWindow([from + (to - from) / 4, to - (to - from) / 4])}>
          +
        </button>
        {window ? (
          <>
            <button type="button" className="small" aria-label="Earlier" disabled={from <= begin} onClick={() => setWindow(shifted(from, to, -0.5, begin, end))}>
              ←
            </button>
            <button type="button" className="small" aria-label="Later" disabled={to >= end} onClick={() => setWindow(shifted(from, to, 0.5, begin, end))}>
              →
            </button>
            <button type="button" className="small" data-testid="whole-run" onClick={() => setWindow(undefined)}>
              Whole run
            </button>
          </>
        ) : (
          <span className="faint axis-hint">or drag over the times</span>
        )}
      </Axis>
      {(hidden > 0 || isWhole) && (
        <div className="timeline-tools">
          <button type="button" className="small" aria-pressed={isWhole} onClick={() => setWhole(!isWhole)}>
            {isWhole ? "Fold many alike" : `Show all ${answer.visits.toLocaleString("en")} visits`}
          </button>
        </div>
      )}
      <VirtualList
        length={rows.length}
        rowHeight={26}
        label="Steps over time"
        focus={rows.findIndex((row) => isSelected(row.node, selected, steps))}
        row={(index) => {
          const step = rows[index];
          return step ? (
            <Bar
              step={step}
              from={from}
              to={to}
              end={end}
              isSelected={isSelected(step.node, selected, steps)}
              onSelect={() => onSelect(nameOfNode(step.node, steps))}
            />
          ) : null;
        }}
      />
    </div>
  );
}

/** The same length of time, earlier or later by a share of it, inside the run. */
function shifted(from: number, to: number, by: number, begin: number, end: number): [number, number] {
  const start = Math.max(begin, Math.min(end - (to - from), from + by * (to - from)));
  return [start, start + (to - from)];
}

function latest(timeline: Timeline, least: number): number {
  let most = least;
  for (const step of timeline.steps) most = Math.max(most, Date.parse(step.ended_at ?? step.started_at));
  return most;
}

interface AxisProps {
  begin: number;
  from: number;
  to: number;
  onZoom(window: [number, number]): void;
  children: ReactNode;
}

function Axis({ begin, from, to, onZoom, children }: AxisProps) {
  const element = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<[number, number]>();
  const share = (event: PointerEvent): number => {
    const box = element.current?.getBoundingClientRect();
    return box ? Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) : 0;
  };
  const release = (): void => {
    if (drag) {
      const [one, other] = [...drag].sort((a, b) => a - b) as [number, number];
      if (other - one > 0.01) onZoom([from + one * (to - from), from + other * (to - from)]);
    }
    setDrag(undefined);
  };
  const ticks = ticksOf(from - begin, to - begin);
  return (
    <div className="timeline-row">
      <div className="timeline-name">{children}</div>
      <div
        ref={element}
        className="axis"
        data-testid="axis"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setDrag([share(event), share(event)]);
        }}
        onPointerMove={(event) => drag && setDrag([drag[0], share(event)])}
        onPointerUp={release}
      >
        {ticks.map((tick) => (
          <span key={tick} style={{ left: `${(100 * (tick - from + begin)) / (to - from)}%` }}>
            {tick === 0 ? "0" : `+${lasting(tick)}`}
          </span>
        ))}
        {drag && (
          <span
            className="axis-drag"
            style={{ left: `${Math.min(...drag) * 100}%`, width: `${Math.abs(drag[1] - drag[0]) * 100}%` }}
          />
        )}
      </div>
    </div>
  );
}

const ROUND = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000];
const LONG = [3_600_000, 7_200_000, 14_400_000, 21_600_000, 43_200_000, 86_400_000];

/** Round times since the beginning, in milliseconds; about five. */
function ticksOf(from: number, to: number): number[] {
  const least = (to - from) / 6;
  const days = Math.max(1, Math.ceil(least / 86_400_000)) * 86_400_000;
  const step = [...ROUND, ...LONG].find((each) => each >= least) ?? days;
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, at) => (first + at) * step).filter((tick) => tick <= to - (to - from) / 20);
}

interface BarProps {
  step: TimelineStep;
  from: number;
  to: number;
  end: number;
  isSelected: boolean;
  onSelect(): void;
}

function Bar({ step, from, to, end, isSelected: is, onSelect }: BarProps) {
  return (
    <button
      type="button"
      className={is ? "timeline-row is-selected" : "timeline-row"}
      aria-pressed={is}
      data-testid="bar"
      onClick={onSelect}
    >
      <span className="timeline-name" style={{ paddingLeft: 8 + step.depth * 14 }}>
        <StatusIcon status={step.status} />
        <bdi>{oneLine(step.title, 80)}</bdi> <span className="unseen">{statusWord(step.status)}</span>
      </span>
      <span className="timeline-bars">
        <Stretch kind="visit" status={step.status} begin={step.started_at} finish={step.ended_at} from={from} to={to} end={end} />
        {step.stretches.slice(0, 200).map((stretch, index) => (
          <Stretch
            key={index}
            kind={stretch.kind}
            status={stretch.failed ? "failed" : step.status}
            begin={stretch.started_at}
            finish={stretch.ended_at}
            from={from}
            to={to}
            end={end}
          />
        ))}
        <span className="timeline-length faint">{span(step, end)}</span>
      </span>
    </button>
  );
}

function span(step: TimelineStep, end: number): string {
  return lasting((step.ended_at ? Date.parse(step.ended_at) : end) - Date.parse(step.started_at));
}

interface StretchProps {
  kind: string;
  status: string;
  begin: string;
  finish: string | null;
  from: number;
  to: number;
  end: number;
}

function Stretch({ kind, status, begin, finish, from, to, end }: StretchProps) {
  const one = Date.parse(begin);
  const other = finish ? Date.parse(finish) : end;
  const left = Math.max(0, (one - from) / (to - from));
  const right = Math.min(1, (other - from) / (to - from));
  if (right < 0 || left > 1) return null;
  return (
    <span
      className={`stretch is-${kind} is-${familyOf(status)}`}
      title={`${clockTime(begin)}, ${lasting(other - one)}`}
      style={{ left: `${left * 100}%`, width: `${Math.max(0, right - left) * 100}%` }}
    />
  );
}
