"""Count how Perdure takes the documents that other projects publish: `python -m tools.upstream COPY [--run]`.

COPY is a folder with copies of their repositories, `COPY/OWNER/NAME/…`. Documents are its YAML files and the YAML
blocks of its Markdown pages; each is checked as `perdure check` does. The counts, and a reason for every refusal, go to
`docs/reference/upstream.md`: a section for each language of `LANGUAGES`, written anew only if COPY has its owner, kept
otherwise. With `--run` those that need nothing from elsewhere are run, too (`tools/upstream_runs.py`); without it the
page keeps what it says about earlier runs. No text of the documents is written.
"""

import argparse
import asyncio
import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools import upstream_runs
from tools.upstream_runs import Ending, Why

from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.documents.problems import Problem, Severity
from perdure.kernel.documents.validation import AppliedDocument
from perdure.views.resources.document_check import validate, validator_for
from perdure.wiring import languages

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "upstream.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"  # what is counted: files that are not here
FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(\w*)")
HEAD = """\
# Documents that already exist

How Perdure takes the documents that other projects publish, counted by `python -m tools.upstream COPY` from a copy of
their repositories. A document is a YAML file, or a YAML block of a Markdown page; each is checked as `perdure check`
does, beside what its own folder or page declares. *Rightly refused*: the original's own rules refuse it as well, or it
is a fragment. What is accepted and needs nothing from elsewhere is also run: with a PostgreSQL, a NATS server, an echo
service and the project's own test service on the same machine, at most a minute each. It ends *as its authors say* if
it succeeds, its own checks included, or fails where they say that it must fail.

Playbooks that read bare names and have no other word of profile "io" are run with `executor.spec.compat: io`, as
`perdure check` advises. A few get smaller inputs than their own (`INPUTS` in `tools/upstream_runs.py`): so they end in
time, and their responses stay below 64 KiB; rules see larger ones as references (PBK-174). `perdure check` warns where
a document breaks PBK-012, PBK-092 or PBK-212.
"""


@dataclass(frozen=True)
class Refusal:
    """Why problems with such a message are no fault of Perdure; else a document counts as refused by it alone."""

    message: re.Pattern[str]
    reason: str


@dataclass(frozen=True)
class Variant:
    """Another way to check what was refused: with a setting that an operator may choose, or rewritten by a command."""

    title: str
    validator: Callable[[], DocumentValidator]
    rewrite: Callable[[str], str] = lambda text: text


@dataclass(frozen=True)
class Upstream:
    """A language, and where its documents are published."""

    title: str
    owner: str
    is_document: Callable[[str], bool]
    is_shared: Callable[[str], bool]  # documents to which those of every other repository may refer
    refusals: Sequence[Refusal]
    missing: Sequence[Refusal] = ()  # why Perdure alone refuses
    left_out: Sequence[str] = ()  # parts of paths
    variants: Sequence[Variant] = ()


@dataclass(frozen=True)
class Published:
    repository: str
    path: str  # in the repository; with the line of a block
    text: str


@dataclass
class Counted:
    """What became of the documents of a language."""

    accepted: list[Published] = field(default_factory=list)
    by_variant: dict[str, list[Published]] = field(default_factory=dict)
    rightly: list[tuple[Published, str]] = field(default_factory=list)
    ours: list[tuple[Published, Problem]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.accepted) + sum(map(len, self.by_variant.values())) + len(self.rightly) + len(self.ours)


# Finding documents.


def find_documents(copy: Path, upstream: Upstream) -> Iterator[Published]:
    root = copy / upstream.owner
    for file in sorted(root.rglob("*")):
        where = file.relative_to(root)
        if not file.is_file() or any(part in where.as_posix() for part in upstream.left_out):
            continue
        repository, path = where.parts[0], "/".join(where.parts[1:])
        if file.suffix in (".yaml", ".yml"):
            texts = [(path, file.read_text("utf-8", "replace"))]
        elif file.suffix in (".md", ".mdx"):
            blocks = yaml_blocks(file.read_text("utf-8", "replace"))
            texts = [(f"{path}:{line}", text) for line, text in blocks]
        else:
            continue
        yield from (Published(repository, place, text) for place, text in texts if upstream.is_document(text))


def yaml_blocks(page: str) -> Iterator[tuple[int, str]]:
    """The YAML blocks of a Markdown page, with the lines of their fences."""
    fence, is_yaml, begin, lines = "", False, 0, list[str]()
    for number, line in enumerate(page.splitlines(), 1):
        match = FENCE.match(line)
        if not fence and match:
            fence, is_yaml, begin, lines = match[1], match[2] in ("yaml", "yml"), number, []
        elif fence and line.strip() == fence:
            if is_yaml:
                yield begin, textwrap.dedent("\n".join(lines)) + "\n"
            fence = ""
        elif fence:
            lines.append(line)


# Counting.


async def count(upstream: Upstream, documents: Sequence[Published]) -> Counted:
    counted = Counted()
    usual = validator_for(languages(), lambda: None)
    for document in documents:
        errors = await _errors(upstream, document, documents, usual)
        if not errors:
            counted.accepted.append(document)
            continue
        unexplained = [problem for problem in errors if _reason(upstream, problem) is None]
        for variant in upstream.variants:
            rewritten = replace(document, text=variant.rewrite(document.text))
            if not await _errors(upstream, rewritten, documents, variant.validator()):
                counted.by_variant.setdefault(variant.title, []).append(document)
                break
        else:
            if len(unexplained) == len(errors):
                counted.ours.append((document, unexplained[0]))
            else:
                reason = next(reason for problem in errors if (reason := _reason(upstream, problem)) is not None)
                counted.rightly.append((document, reason))
    return counted


async def _errors(
    upstream: Upstream, document: Published, documents: Sequence[Published], validator: DocumentValidator
) -> list[Problem]:
    place = _place(document)
    beside = [
        AppliedDocument(f"{other.repository}/{other.path}", other.text)
        for other in documents
        if other.path != document.path and (_place(other) == place or upstream.is_shared(other.text))
    ]
    checked = await validate(document.path, document.text.encode(), validator, beside)
    return [problem for problem in checked.problems if problem.severity is Severity.ERROR]


def _place(document: Published) -> tuple[str, str]:
    """Documents of one page, or of one folder, are read together."""
    page, _, line = document.path.rpartition(":")
    return document.repository, page if page and line.isdecimal() else str(Path(document.path).parent)


def _reason(upstream: Upstream, problem: Problem) -> str | None:
    return _reason_of(upstream.refusals, problem)


def _reason_of(refusals: Sequence[Refusal], problem: Problem) -> str | None:
    return next((refusal.reason for refusal in refusals if refusal.message.search(problem.message)), None)


# Writing.


def section(upstream: Upstream, counted: Counted, runs: Sequence[str] = ()) -> str:
    """`runs`: the lines about what was run."""
    refused = len(counted.rightly)
    rows = [("documents", counted.total), ("accepted", len(counted.accepted))]
    rows += [(title, len(documents)) for title, documents in counted.by_variant.items()]
    rows += [("rightly refused", refused), ("refused by Perdure alone", len(counted.ours))]
    lines = [f"## {upstream.title}", "", BEGIN, f"Of the repositories of {upstream.owner}:", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {number} |" for name, number in rows]
    fit = counted.total - refused
    taken = fit - len(counted.ours)
    lines += ["", f"Of the {fit} that are not rightly refused, {taken} are taken ({100 * taken // max(fit, 1)} %).", ""]
    lines += ["| repository | documents | accepted |", "|---|---|---|", *_by_repository(counted), ""]
    for title, documents in counted.by_variant.items():
        places = Counter(f"{document.repository}/{Path(document.path).parent}" for document in documents)
        lines += [f"{title[:1].upper()}{title[1:]}: {', '.join(f'{place} ({n})' for place, n in places.items())}.", ""]
    if counted.rightly:
        lines += ["Rightly refused:", "", "| document | because |", "|---|---|"]
        lines += [f"| {document.repository}/{document.path} | {reason} |" for document, reason in counted.rightly]
        lines.append("")
    if counted.ours:
        lines += ["Refused by Perdure alone:", "", "| document | where | rule | because |", "|---|---|---|---|"]
        lines += [
            f"| {document.repository}/{document.path} | `{problem.path}` | {problem.code} |"
            f" {_reason_of(upstream.missing, problem) or 'it is not known here'} |"
            for document, problem in counted.ours
        ]
        lines.append("")
    return "\n".join([*lines, *runs, END, ""])


def _by_repository(counted: Counted) -> list[str]:
    taken = [*counted.accepted, *(document for documents in counted.by_variant.values() for document in documents)]
    refused = [document for document, _ in (*counted.rightly, *counted.ours)]
    accepted = Counter(document.repository for document in taken)
    total = Counter(document.repository for document in (*taken, *refused))
    return [f"| {name} | {total[name]} | {accepted[name]} |" for name in sorted(total)]


def page(sections: Mapping[str, str], before: str) -> str:
    """With the sections that are given; of other languages those that the page has."""
    kept = {text.partition("\n")[0].strip(): text for text in before.split("\n## ")[1:]}
    parts = [HEAD]
    for upstream in LANGUAGES:
        if upstream.title in sections:
            parts.append(sections[upstream.title].rstrip() + "\n")
        elif upstream.title in kept:
            parts.append(f"## {kept[upstream.title].rstrip()}\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("copy", metavar="COPY", type=Path)
    parser.add_argument("--run", action="store_true", help="run the accepted ones, too; takes about 20 minutes")
    args = parser.parse_args()
    copy: Path = args.copy
    present = [upstream for upstream in LANGUAGES if (copy / upstream.owner).is_dir()]
    if not present:
        parser.error(f"{copy} has none of the folders {', '.join(upstream.owner for upstream in LANGUAGES)}")
    sections = {}
    before = PAGE.read_text() if PAGE.exists() else ""
    for upstream in present:
        counted = asyncio.run(count(upstream, list(find_documents(copy, upstream))))
        runs = _run(upstream, copy, counted) if args.run else earlier_runs(upstream, before)
        sections[upstream.title] = section(upstream, counted, runs)
    PAGE.write_text(page(sections, before))


def _run(upstream: Upstream, copy: Path, counted: Counted) -> list[str]:
    accepted = [(document, document.text) for document in counted.accepted]
    for variant in upstream.variants:
        documents = counted.by_variant.get(variant.title, ())
        accepted += [(document, variant.rewrite(document.text)) for document in documents]
    taken = [
        upstream_runs.Accepted(copy / upstream.owner / document.repository, document.path, text)
        for document, text in accepted
    ]
    ran = list[upstream_runs.Ran]()
    for outcome in (
        upstream_runs.run_stories(taken) if upstream is STORIES else upstream_runs.run_playbooks(taken, ENDINGS)
    ):
        print(outcome.status, outcome.place, outcome.reason, flush=True)
        ran.append(outcome)
    return upstream_runs.runs_section(upstream.title, ran)


def earlier_runs(upstream: Upstream, before: str) -> list[str]:
    _, begin, rest = before.partition(f"### {upstream.title} that were run\n")
    return [f"{begin}{rest.partition(END)[0]}".rstrip(), ""] if begin else []


# The languages.


def _story_validator(settings: Mapping[str, object]) -> DocumentValidator:
    """As with these settings of the operator."""
    before = os.environ.get("PERDURE_STORY_SETTINGS", "")
    os.environ["PERDURE_STORY_SETTINGS"] = json.dumps(settings)
    try:
        return validator_for(languages(), lambda: None)
    finally:
        os.environ["PERDURE_STORY_SETTINGS"] = before


_BUBUSTACK = re.compile(r"^apiVersion:\s*[\"']?([a-z]+\.)*bubustack\.io/", re.MULTILINE)
_TEMPLATE = re.compile(r"^kind:\s*(Engram|Impulse)Template\s*$", re.MULTILINE)
STORIES = Upstream(
    "Stories",
    "bubustack",
    is_document=lambda text: _BUBUSTACK.search(text) is not None,
    is_shared=lambda text: _TEMPLATE.search(text) is not None,
    refusals=(
        Refusal(re.compile(r"^spec is required"), "a scaffold without a `spec`"),
        Refusal(re.compile(r"^spec\.steps is required"), "a fragment: it shows a part of a Story"),
        Refusal(re.compile(r"not found$"), "refers to a resource that none of the documents declares"),
        Refusal(re.compile(r"does not match spec\.inputs"), "its input hash is a placeholder"),
        Refusal(re.compile(r"^metadata\.name must be"), "its derived name is a placeholder"),
        Refusal(re.compile(r"must be a string, not \{"), "a map of secrets has names, not objects"),
        Refusal(re.compile(r"is required by the template$"), "a fragment, without a secret that its template requires"),
        Refusal(re.compile(r"there must be a space, `\|` or the end"), "its template is not a Go template"),
        Refusal(re.compile(r"^function .* is not defined"), "its template calls a function that there is not"),
        Refusal(re.compile(r"is not allowed for trigger-key templates"), "a template of a key reads only the event"),
    ),
    left_out=("config/crd/", "node_modules/"),
    variants=(
        Variant("accepted with `admission.lenient`", lambda: _story_validator({"admission.lenient": True})),
        Variant("accepted with the driver `s3`", lambda: _story_validator({"storage.drivers": ["file", "s3"]})),
    ),
)


def _converted(text: str) -> str:
    return languages()["playbook"].convert(text.encode()).text or text


_LEGACY = (
    *("must be a router with 'arcs'", "a step needs 'tool' or 'next'", "there are no vars", "has no 'next_mode'"),
    *(r"'else' (lacks 'then'|must be a map)", "a task has no member 'retry'", r"a step has no member '\w+'"),
    *(r"'loop' (lacks|has no member)", "must be one of none, linear, exponential", "there is no step 'end'"),
    "an arc has no member",
)
_KINDS = "agent|ducklake|gcs|mcp|provider|rhai|snowflake|subscription|transfer"
PLAYBOOKS = Upstream(
    "Playbooks",
    "noetl",
    is_document=lambda text: re.search(r"^kind:\s*[\"']?Playbook", text, re.MULTILINE) is not None,
    is_shared=lambda text: False,
    refusals=(
        *(Refusal(re.compile(pattern), "constructs from before v10 (PBK-032)") for pattern in _LEGACY),
        Refusal(re.compile(r"^metadata lacks"), "`metadata.path` is required (PBK-003)"),
        Refusal(re.compile(r"^'apiVersion' must be one of"), "an earlier `apiVersion` (PBK-002)"),
        Refusal(re.compile(r"^'workflow' |lacks 'workflow'"), "a fragment: it has no steps"),
        Refusal(re.compile(r"did not find expected|could not find expected|without quotes"), "it is not YAML"),
        Refusal(re.compile(r"unexpected .*, in `"), "its template is not Jinja"),
        Refusal(re.compile(rf"there is no tool kind '({_KINDS})'"), "a kind that cannot be tried here"),
    ),
    missing=(
        Refusal(
            re.compile(r"a container task needs 'runtime'|no member 'tracing'"),
            "needs jobs of a Kubernetes cluster (`resources`, `service_account` …), which cannot be tried here",
        ),
        Refusal(re.compile(r"not 'google_id_token'"), "needs identity tokens of Google, which cannot be tried here"),
        Refusal(
            re.compile(r"a keychain entry lacks 'kind'"),
            "has an entry without a kind, for OAuth of Google, which cannot be tried here",
        ),
        Refusal(
            re.compile(r"code gets credentials as args"),
            "needs credentials of Google Cloud Storage for code, which cannot be tried here",
        ),
        Refusal(re.compile(r"not 'inline'"), "its program is a template, and program text never is (PBK-092)"),
        Refusal(
            re.compile(r"not 'gcs'|result store 'gcs'|'gcs_credential'"),
            "needs Google Cloud Storage, which cannot be tried here",
        ),
        Refusal(
            re.compile(r"no field 'exports'"),
            "relies on a field that nothing in these repositories reads",
        ),
        Refusal(
            re.compile(r"not '\{\{"),
            "where its script is depends on data, and it runs as a job of a Kubernetes cluster",
        ),
    ),
    variants=(
        Variant("accepted after `perdure convert`", lambda: validator_for(languages(), lambda: None), _converted),
    ),
)
ENDINGS = {
    "noetl/tests/fixtures/": Ending(Why.NOT_ALONE, "it calls a Playbook that none of the documents declares"),
    "docs/docs/cli/index.md:": Ending(Why.NOT_ALONE, "it calls files that its page does not contain"),
    "docs/docs/cli/local_execution.md:": Ending(Why.NOT_ALONE, "it calls files that its page does not contain"),
    "noetl/noetl.yaml": Ending(Why.NOT_ALONE, "needs an input, its target"),
    "/get_auth0_token.yaml": Ending(Why.NOT_ALONE, "needs a user and a password as inputs"),
    "/setup_admin_permissions.yaml": Ending(Why.NOT_ALONE, "needs the tables that another document makes"),
    "/test_mds_batch_worker.yaml": Ending(Why.NOT_ALONE, "is a part of another document, which makes its tables"),
    "/postgres_test.yaml": Ending(Why.NOT_ALONE, "reads tables of NoETL's own database"),
    "/frame_heartbeat_regression.yaml": Ending(Why.NOT_ALONE, "reads tables of NoETL's own database"),
    "/unsupported_tools.yaml": Ending(Why.NOT_ALONE, "asks for a table that it does not make"),
    "/state_inspect.yaml": Ending(
        Why.NOT_ALONE, "reads a file that other documents write, in a folder that the operator must open"
    ),
    "/actions_test.yaml": Ending(Why.THERE_TOO, "its own check reads a key of `ctx` that nothing sets"),
    "/duckdb_test.yaml": Ending(
        Why.THERE_TOO, "its own check expects a list of rows; in NoETL, too, a result is a table (PBK-097)"
    ),
    "/save_all_storage_types.yaml": Ending(
        Why.THERE_TOO, "its workload calls `now()`, which NoETL's templates do not have either (PBK-012)"
    ),
    "/test_vars_block.yaml": Ending(Why.THERE_TOO, "reads a member of `output` that NoETL does not have"),
    "/kind_playbook_lease_expiry.yaml": Ending(
        Why.A_RULE, "sets keys of `ctx` to lists of 150 KiB; one may have 64 KiB (PBK-155)"
    ),
    "/test_loop_with_pagination.yaml": Ending(
        Why.A_RULE, "uses the id of its run as a number; here ids are texts (PBK-212)"
    ),
    "/test_pipeline_heavy_payload.yaml": Ending(
        Why.A_RULE, "its code is a template, and program text never is (PBK-092)"
    ),
    "/test_fetch_load.yaml": Ending(
        Why.A_RULE, "reads the body of a response as `output.data`; it is `output.data.data` (PBK-095, PBK-158)"
    ),
}
LANGUAGES: tuple[Upstream, ...] = (STORIES, PLAYBOOKS)

if __name__ == "__main__":
    main()
