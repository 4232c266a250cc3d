// Kinds of documents that people keep in the catalog.
export interface Kind {
  plural: string;
  title: string;
  canRun: boolean;
  language?: string;
}

export const KINDS: Kind[] = [
  { plural: "stories", title: "Stories", canRun: true, language: "story" },
  { plural: "flows", title: "Flows", canRun: true, language: "flow" },
  { plural: "playbooks", title: "Playbooks", canRun: true, language: "playbook" },
  { plural: "engrams", title: "Engrams", canRun: false },
  { plural: "impulses", title: "Impulses", canRun: false },
];

export interface Resource {
  kind: string;
  metadata: {
    name: string;
    namespace?: string;
    generation?: number;
    creationTimestamp?: string;
    annotations?: Record<string, string>;
  };
  status?: { validationStatus?: string; validationErrors?: string[]; validationWarnings?: string[] };
}
