// The first page of a new server: the three commands that make a run.
import { mayAsk } from "../api/client";
import { Line } from "../parts/Copy";

export function FirstSteps() {
  const origin = window.location.origin;
  return (
    <section className="first-steps" data-testid="first-steps">
      <h2>No run yet</h2>
      <p>Three commands make one. It appears here by itself.</p>
      <ol>
        <li>
          Say where the server is, and who you are:
          <Line label="the first command" text={`perdure context add here --server ${origin} --access-token @FILE`} />
        </li>
        <li>
          Start a document:
          <Line label="the second command" text={`perdure run examples/flows/first-call.json --input '"Ada"'`} />
        </li>
        <li>
          Look at it, here or there:
          <Line label="the third command" text="perdure ps" />
        </li>
      </ol>
      {mayAsk("POST /api/v1/check") && (
        <p>
          Or <a href="#/write">write one here</a>.
        </p>
      )}
    </section>
  );
}
