// Where a document begins: one that runs as it is, in each language.
export const EXAMPLES = {
  story: `apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: greeting}
spec:
  inputsSchema: {type: object, properties: {who: {type: string, default: world}}}
  steps:
  - {name: greet, ref: echo, with: {text: "Hello, {{ inputs.who }}"}}
  - {name: shout, ref: echo, needs: [greet], with: {text: "{{ steps.greet.output.text | upper }}"}}
  output: {text: "{{ steps.shout.output.text }}"}
`,
  flow: `{
  "$schema": "https://mwl.dev/v0.1/flow/schema.json",
  "entrypoint": "greet",
  "steps": {
    "greet": {
      "action": "Call",
      "call": {
        "provider": "mwl:provider.call/perdure/echo/v1",
        "with": { "value": "{{ 'Hello, ' + string(call.input) }}" }
      },
      "next": "done"
    },
    "done": { "action": "Return" }
  }
}
`,
  playbook: `apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: greeting, path: greeting}
workload: {who: world}
workflow:
- step: start
  next: {arcs: [{step: greet}]}
- step: greet
  tool: {kind: noop, result: {text: "Hello, {{ workload.who }}"}}
`,
};
