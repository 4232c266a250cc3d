// A long list of which only the rows in sight are there. All rows have the same height.
import { useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";

const BEYOND = 8; // rows above and below what is in sight

interface Props {
  length: number;
  rowHeight: number;
  label: string;
  /** Brings this row into sight when it changes. */
  focus?: number;
  row(index: number): ReactNode;
  onSeen?(first: number, last: number): void;
  testId?: string;
}

export function VirtualList({ length, rowHeight, label, focus, row, onSeen, testId }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);

  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setHeight(element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const element = frame.current;
    if (!element || focus === undefined || focus < 0) return;
    const place = focus * rowHeight;
    if (place < element.scrollTop || place > element.scrollTop + element.clientHeight - rowHeight) {
      element.scrollTop = Math.max(0, place - element.clientHeight / 2);
    }
  }, [focus, rowHeight]);

  const first = Math.max(0, Math.floor(top / rowHeight) - BEYOND);
  const last = Math.min(length, Math.ceil((top + height) / rowHeight) + BEYOND);
  useEffect(() => onSeen?.(first, last), [first, last, onSeen]);

  const indexes = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  return (
    <div
      ref={frame}
      className="virtual"
      role="list"
      aria-label={label}
      data-testid={testId}
      tabIndex={0}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <div className="virtual-space" style={{ height: length * rowHeight }}>
        {indexes.map((index) => (
          <div
            key={index}
            role="listitem"
            className="virtual-row"
            style={{ top: index * rowHeight, height: rowHeight }}
          >
            {row(index)}
          </div>
        ))}
      </div>
    </div>
  );
}
