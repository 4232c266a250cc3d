// What a JSON Schema allows at a place of a document: members, and words that the value of a member may be. Pure.
import type { Json } from "../api/types";
import type { Offer } from "./completion";
import { placeIn, type Level } from "./place";

interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string | string[];
  description?: string;
  const?: Json;
  enum?: Json[];
  examples?: Json[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  if?: Schema;
  then?: Schema;
  else?: Schema;
}

const DEEPEST = 20;

/** The schema and all that it includes, as far as the values beside the cursor decide it. */
function parts(root: Schema, schema: Schema | undefined, values: Record<string, string>, depth = 0): Schema[] {
  if (!schema || depth > DEEPEST) return [];
  const inside = (part: Schema | undefined): Schema[] => parts(root, part, values, depth + 1);
  const found: Schema[] = [schema];
  if (schema.$ref) found.push(...inside(root.$defs?.[schema.$ref.replace("#/$defs/", "")]));
  for (const part of [...(schema.allOf ?? []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]) found.push(...inside(part));
  if (schema.if) found.push(...inside(holds(schema.if, values) ? schema.then : schema.else));
  return found;
}

function holds(condition: Schema, values: Record<string, string>): boolean {
  return Object.entries(condition.properties ?? {}).every(([name, member]) => {
    const value = values[name];
    if (value === undefined) return !condition.required?.includes(name);
    const words = member.const !== undefined ? [member.const] : (member.enum ?? []);
    return words.map(String).includes(value);
  });
}

/** The schemas that hold at the end of the levels. */
function schemasAt(root: Schema, levels: Level[]): Schema[] {
  let current = parts(root, root, levels[0]?.values ?? {});
  for (const [index, { step }] of levels.slice(0, -1).entries()) {
    const values = levels[index + 1]?.values ?? {};
    const next = current.flatMap((schema) => (typeof step === "number" ? [schema.items] : [member(schema, String(step))]));
    current = next.flatMap((schema) => parts(root, schema, values));
  }
  return current;
}

function member(schema: Schema, name: string): Schema | undefined {
  const own = schema.properties?.[name];
  return own ?? (typeof schema.additionalProperties === "object" ? schema.additionalProperties : undefined);
}

/** Null: the schema says nothing about this place. */
export function offersAt(schema: Json | undefined, text: string, position: number): Offer[] | null {
  const root = schema as unknown as Schema | undefined;
  const place = root && placeIn(text, position);
  if (!root || !place) return null;
  const { levels, member: valued } = place;
  const here = levels.at(-1);
  const schemas = schemasAt(root, levels);
  const offers = new Map<string, Offer>();
  if (valued !== null) {
    for (const part of schemas.flatMap((each) => parts(root, member(each, valued), {}))) {
      const words = [...(part.const !== undefined ? [part.const] : []), ...(part.enum ?? []), ...(part.examples ?? [])];
      if (part.type === "boolean") words.push(true, false);
      for (const word of words) offers.set(String(word), { label: String(word), type: "enum", detail: valued });
    }
  } else {
    const isRequired = new Set(schemas.flatMap((each) => each.required ?? []));
    for (const part of schemas) {
      for (const [name, described] of Object.entries(part.properties ?? {})) {
        if (here?.names.has(name)) continue;
        const known = offers.get(name);
        const { detail, info } = describe(root, described);
        if (known && !(known.info === "" && info)) continue;
        offers.set(name, { label: name, type: "property", detail: isRequired.has(name) ? `${detail}, required` : detail, info });
      }
    }
  }
  return offers.size > 0 ? [...offers.values()] : null;
}

function describe(root: Schema, schema: Schema): { detail: string; info: string } {
  const all = parts(root, schema, {});
  const types = new Set(all.flatMap((each) => each.type ?? []));
  return { detail: [...types].join(" or "), info: all.find((each) => each.description)?.description ?? "" };
}
