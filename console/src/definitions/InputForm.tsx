// What a start says, as a form made from its schema or as JSON: the input of a run, or the arguments of a Flow.
import { useState } from "react";
import type { Json } from "../api/types";

export interface Schema {
  type?: string | string[];
  properties?: Record<string, Field>;
  required?: string[];
}

interface Field {
  type?: string | string[];
  default?: Json;
  description?: string;
  enum?: Json[];
}

export interface Given {
  isText: boolean;
  values: Record<string, string>;
  text: string;
}

export const NOTHING: Given = { isText: false, values: {}, text: "" };

interface Props {
  id: "input" | "argument";
  title: string;
  schema: Schema | undefined;
  given: Given;
  onGive(given: Given): void;
}

export function InputForm({ id, title, schema, given, onGive }: Props) {
  const fields = Object.entries(schema?.properties ?? {});
  const usesText = given.isText || fields.length === 0;
  const [wasOffered] = useState(fields.length > 0);
  const give = (name: string, value: string): void => onGive({ ...given, values: { ...given.values, [name]: value } });
  return (
    <fieldset className="fields">
      <legend>{title}</legend>
      {!usesText &&
        fields.map(([name, about]) => (
          <div className="field" key={name}>
            <label htmlFor={`${id}-${name}`}>
              {name}
              {schema?.required?.includes(name) ? " (needed)" : ""}
            </label>
            {about.enum || about.type === "boolean" ? (
              <select id={`${id}-${name}`} data-testid={`${id}-${name}`} value={given.values[name] ?? ""} onChange={(event) => give(name, event.target.value)}>
                <option value="" />
                {(about.enum ?? [true, false]).map((each) => (
                  <option key={String(each)}>{String(each)}</option>
                ))}
              </select>
            ) : (
              <input
                id={`${id}-${name}`}
                data-testid={`${id}-${name}`}
                placeholder={about.default === undefined ? "" : JSON.stringify(about.default).slice(0, 80)}
                value={given.values[name] ?? ""}
                onChange={(event) => give(name, event.target.value)}
              />
            )}
            <span className="faint">{[typeText(about.type), about.description].filter(Boolean).join(": ").slice(0, 200)}</span>
          </div>
        ))}
      {usesText && (
        <div className="field">
          <label htmlFor={`${id}-json`} className="unseen">
            {title} (JSON)
          </label>
          <textarea id={`${id}-json`} data-testid={`${id}-json`} rows={5} placeholder="JSON" value={given.text} onChange={(event) => onGive({ ...given, text: event.target.value })} />
        </div>
      )}
      {wasOffered && (
        <button
          type="button"
          className="quiet small as-text"
          onClick={() => onGive({ ...given, isText: !given.isText, text: given.isText ? given.text : asText(schema, given) })}
        >
          {given.isText ? "As a form" : "As JSON"}
        </button>
      )}
    </fieldset>
  );
}

/** The value, or what is wrong with it; undefined if nothing is said. */
export function valueOf(schema: Schema | undefined, given: Given): { value?: Json; problem?: string } {
  const fields = Object.entries(schema?.properties ?? {});
  try {
    if (given.isText || fields.length === 0) return given.text.trim() ? { value: JSON.parse(given.text) as Json } : {};
    const said = fields.filter(([name]) => (given.values[name] ?? "") !== "");
    const missing = (schema?.required ?? []).filter((name) => !given.values[name] && schema?.properties?.[name]?.default === undefined);
    if (missing.length) return { problem: `${missing.join(", ")}: needed` };
    if (said.length === 0) return {};
    return { value: Object.fromEntries(said.map(([name, about]) => [name, fieldValue(name, about, given.values[name] ?? "")])) };
  } catch (failed) {
    return { problem: (failed as Error).message };
  }
}

function asText(schema: Schema | undefined, given: Given): string {
  return JSON.stringify(valueOf(schema, given).value ?? {}, null, 2);
}

function typeText(type: string | string[] | undefined): string {
  return Array.isArray(type) ? type.join(" or ") : (type ?? "");
}

function fieldValue(name: string, about: Field, text: string): Json {
  if (about.enum) return about.enum.find((each) => String(each) === text) ?? text;
  if (about.type === "string") return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    if (about.type === undefined || typeText(about.type).includes("string")) return text;
    const isTree = about.type === "array" || about.type === "object";
    throw new Error(`${name}: not ${isTree ? "JSON" : `of type ${typeText(about.type)}`}`);
  }
}
