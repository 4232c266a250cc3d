// A text editor with line numbers and problems at their lines. It lives in a shadow root: there CodeMirror's styles
// need no permission that the page does not give.
import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import type { Problem } from "../api/shapes";
import type { Offer } from "./completion";

const COLORS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--late)" },
  { tag: tags.comment, color: "var(--faint)" },
]);

const LOOK = EditorView.theme({
  "&": { height: "100%", fontSize: "0.8125rem", backgroundColor: "var(--surface)", color: "var(--ink)" },
  "&.cm-focused": { outline: "none" }, // its host has one, around the line numbers too
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--accent-ground)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-ground) !important" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
});

interface Props {
  text: string;
  label: string;
  problems?: Problem[];
  words?: Offer[]; // offered while typing
  offersAt?(text: string, position: number): Offer[] | null; // at a place of the document; null: the words are offered
  line?: { number: number }; // to be shown; another object shows it again
  onChange?(text: string): void;
}

export default function Editor({ text, label, problems = [], words = [], offersAt, line, onChange }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const told = useRef(onChange);
  told.current = onChange;
  const offered = useRef(words);
  offered.current = words;
  const placed = useRef(offersAt);
  placed.current = offersAt;

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const complete = (context: CompletionContext): CompletionResult | null => {
      const word = context.matchBefore(/[$\w./:-]+/);
      if (!word && !context.explicit) return null;
      const from = word?.from ?? context.pos;
      const members = placed.current?.(context.state.doc.toString(), from);
      return { from, options: members ?? offered.current, validFor: /^[$\w./:-]*$/ };
    };
    const isReadOnly = told.current === undefined;
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          lintGutter(),
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          closeBrackets(),
          highlightActiveLine(),
          highlightActiveLineGutter(),
          highlightSelectionMatches(),
          syntaxHighlighting(COLORS),
          text.trimStart().startsWith("{") ? json() : yaml(),
          autocompletion({ override: [complete] }),
          keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, ...completionKeymap]),
          LOOK,
          EditorState.readOnly.of(isReadOnly),
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          EditorView.updateListener.of((update) => update.docChanged && told.current?.(update.state.doc.toString())),
        ],
      }),
    });
    view.current = editor;
    return () => {
      editor.destroy();
      view.current = null;
    };
    // Another text from outside comes with another key.
  }, [label]);

  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    if (told.current === undefined && editor.state.doc.toString() !== text) {
      editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
    }
    editor.dispatch(setDiagnostics(editor.state, problems.map((problem) => marked(editor.state, problem))));
  }, [problems, text]);

  useEffect(() => {
    const editor = view.current;
    if (!editor || !line) return;
    const { from } = editor.state.doc.line(Math.min(Math.max(1, line.number), editor.state.doc.lines));
    editor.dispatch({ selection: { anchor: from }, effects: EditorView.scrollIntoView(from, { y: "center" }) });
    editor.focus();
  }, [line]);

  return <div ref={host} className="editor-host" data-testid="editor" />;
}

function marked(state: EditorState, problem: Problem): Diagnostic {
  const line = state.doc.line(Math.min(Math.max(1, problem.line ?? 1), state.doc.lines));
  const from = Math.min(line.to, line.from + Math.max(0, (problem.column ?? 1) - 1));
  const severity = problem.severity === "error" ? "error" : "warning";
  return { from, to: Math.max(from, line.to), severity, message: problem.message };
}
