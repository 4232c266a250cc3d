// Server-Sent Events, read with fetch: their names are not known beforehand, and the browser's own reader needs them.
import { lost, untilConnected } from "./connection";
import { readJson, Refused, send, Unreachable } from "./client";
import type { Json } from "./types";

export interface LiveEvent {
  id: string;
  name: string;
  data: Json;
}

interface Following {
  /** The address behind an event. */
  address(after: string): string;
  after: string;
  onEvent(event: LiveEvent): void;
  onLive?(isLive: boolean): void;
  signal: AbortSignal;
}

/** Follows a stream until it has ended or the signal says so; continues behind the last event after a break. */
export async function follow(following: Following): Promise<void> {
  let after = following.after;
  while (!following.signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream" };
      const response = await send(following.address(after), { headers, signal: following.signal });
      if (response.status === 204 || response.body === null) return;
      following.onLive?.(true);
      for await (const event of eventsOf(response.body)) {
        if (event.id) after = event.id;
        following.onEvent(event);
      }
      following.onLive?.(false);
    } catch (error) {
      following.onLive?.(false);
      if (following.signal.aborted) return;
      if (error instanceof Refused) return;
      if (!(error instanceof Unreachable)) lost();
    }
    await untilConnected();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<LiveEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const blocks = rest.split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = eventOf(block);
        if (event) yield event;
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

function eventOf(block: string): LiveEvent | null {
  const fields = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const name = line.slice(0, at);
    if (at > 0 && (name === "id" || name === "event" || name === "data")) {
      const text = line.slice(at + 1).replace(/^ /, "");
      fields[name] = name === "data" && fields.data ? `${fields.data}\n${text}` : text;
    }
  }
  return fields.data ? { id: fields.id, name: fields.event, data: readJson(fields.data) } : null;
}
