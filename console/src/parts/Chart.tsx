// Lines or stacked bars over time. Colours come from the page's tokens; the same figures are in a table for readers of it.
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  label: string;
  color: string; // the name of a token
  values: (number | null)[];
}

const SHORTEST = 60; // seconds that lines are drawn over, at least

interface Props {
  times: number[]; // seconds
  series: Series[];
  height: number;
  label: string;
  bars?: boolean;
}

export default function Chart({ times, series, height, label, bars = false }: Props) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = host.current;
    if (!element || times.length === 0) return;
    const style = getComputedStyle(element);
    const color = (name: string) => (): string => resolved(element, name); // asked again when dark becomes light
    const stacked = bars ? stack(series) : series.map((each) => each.values);
    const order = bars ? series.map((_, index) => index).reverse() : series.map((_, index) => index);
    const font = `11px ${style.fontFamily}`;
    const axis = { stroke: color("--faint"), font, grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot(
      {
        width: element.clientWidth || 400,
        height,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { range: (_, first, last) => [bars ? first : Math.min(first, last - SHORTEST), last] },
          y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] },
        },
        axes: [
          { ...axis, size: 22, values: (_, moments, __, ___, step) => moments.map((moment) => clock(moment, step)) },
          { ...axis, size: 38, space: 18 },
        ],
        series: [
          {},
          ...order.map((index) => ({
            label: series[index]?.label ?? "",
            stroke: color(series[index]?.color ?? "--faint"),
            fill: bars ? color(series[index]?.color ?? "--faint") : undefined,
            width: bars ? 0 : 1.5,
            paths: bars ? uPlot.paths.bars?.({ size: [0.8, 24] }) : undefined,
            points: { show: false },
          })),
        ],
      },
      [times, ...order.map((index) => stacked[index] ?? [])] as uPlot.AlignedData,
      element,
    );
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    const redraw = (): void => plot.redraw();
    scheme.addEventListener("change", redraw);
    return () => {
      scheme.removeEventListener("change", redraw);
      watch.disconnect();
      plot.destroy();
    };
  }, [times, series, height, bars]);
  return <div ref={host} className="chart" role="img" aria-label={label} style={{ minHeight: height }} />;
}

function clock(moment: number, step: number): string {
  const second = step < 60 ? ({ second: "2-digit" } as const) : {};
  return new Date(moment * 1000).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...second });
}

/** `light-dark()` is resolved by the browser where a colour is used. */
function resolved(element: HTMLElement, token: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  element.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

function stack(series: Series[]): number[][] {
  const sums: number[] = [];
  return series.map((each) => each.values.map((value, index) => (sums[index] = (sums[index] ?? 0) + (value ?? 0))));
}
