// What is offered while typing: members of the schemas that the server knows, and the names that the document has. Pure.
import type { Json } from "../api/types";

export interface Offer {
  label: string;
  type?: string; // what it is: it chooses the icon
  detail?: string;
  info?: string;
}

interface Schema {
  type?: Json;
  description?: Json;
  enum?: Json;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

const DEEPEST = 12;
const MOST = 3_000;

/** Every member of a schema, and every word that a member may be, wherever in it they are. */
export function offersOf(schema: Json | undefined, of: string): Offer[] {
  const offers = new Map<string, Offer>();
  const visit = (part: Schema, depth: number): void => {
    if (!part || typeof part !== "object" || depth > DEEPEST || offers.size > MOST) return;
    for (const [name, member] of Object.entries(part.properties ?? {})) {
      if (!offers.has(name)) {
        const kind = Array.isArray(member.type) ? member.type.join(" or ") : String(member.type ?? "");
        offers.set(name, { label: name, type: "property", detail: `${of}${kind ? `, ${kind}` : ""}`, info: String(member.description ?? "") });
      }
      for (const word of Array.isArray(member.enum) ? member.enum : []) {
        const label = String(word);
        if (!offers.has(label)) offers.set(label, { label, type: "enum", detail: `${of} ${name}` });
      }
      visit(member, depth + 1);
    }
    if (part.items) visit(part.items, depth + 1);
    if (part.additionalProperties && typeof part.additionalProperties === "object") visit(part.additionalProperties, depth + 1);
    for (const other of [...(part.anyOf ?? []), ...(part.oneOf ?? []), ...(part.allOf ?? [])]) visit(other, depth + 1);
  };
  visit(schema as unknown as Schema, 0);
  return [...offers.values()];
}

/** Schemas first; a name that the document has and no schema knows comes last. */
export function merged(lists: Offer[][], text: string): Offer[] {
  const own = text.slice(0, 200_000).match(/[A-Za-z_][\w-]{2,40}/g) ?? [];
  const offers = new Map<string, Offer>();
  for (const offer of lists.flat()) if (!offers.has(offer.label)) offers.set(offer.label, offer);
  for (const label of own) if (!offers.has(label)) offers.set(label, { label, type: "text" });
  return [...offers.values()].slice(0, MOST);
}
