// A resource as the text of a document: what the server adds is left out.
import type { Json } from "../api/types";

const STEP_LINES = "perdure.dev/step-lines";
const ADDED = ["uid", "generation", "resourceVersion", "creationTimestamp", "managedFields"];

export function documentOf(resource: Json): Json {
  if (!resource || typeof resource !== "object" || Array.isArray(resource)) return resource;
  const { status: _, ...rest } = resource;
  const metadata = rest["metadata"];
  if (!metadata || typeof metadata !== "object" || Array.isArray(metadata)) return rest;
  const kept = Object.entries(metadata).filter(([name]) => !ADDED.includes(name));
  const own = Object.fromEntries(kept);
  const annotations = own["annotations"];
  if (annotations && typeof annotations === "object" && !Array.isArray(annotations)) {
    const left = Object.entries(annotations).filter(([name]) => name !== STEP_LINES);
    if (left.length) own["annotations"] = Object.fromEntries(left);
    else delete own["annotations"];
  }
  return { ...rest, metadata: own };
}

export function textOf(resource: Json): string {
  return JSON.stringify(documentOf(resource), null, 2);
}
