"""The tool that counts how documents of other projects are taken, on a copy made for it (`tools/upstream.py`)."""

import asyncio
from pathlib import Path

from tools.upstream import LANGUAGES, STORIES, count, find_documents, page, section, yaml_blocks

HEAD = "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: NAME}\n"
STORY = HEAD + "spec:\n  steps: [{name: s, type: TYPE}]\n"
GATE = STORY.replace("TYPE", "gate")


def copy(folder: Path) -> Path:
    files = {
        "one/good.yaml": GATE.replace("NAME", "good"),
        "one/stray.yaml": GATE.replace("NAME", "stray") + "  colour: planted-text\n",
        "one/config/crd/left-out.yaml": GATE,
        "two/README.md": f"# x\n\n```yaml\n{GATE.replace('NAME', 'block')}```\n\n```sh\n{GATE}```\n",
        "two/scaffold.yaml": HEAD.replace("NAME", "x"),
        "two/other.yaml": "kind: Service\n",
        "two/ours.yaml": STORY.replace("NAME", "ours").replace("TYPE", "planted"),
    }
    for name, text in files.items():
        file = folder / STORIES.owner / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_each_document_is_accepted_or_has_a_reason(tmp_path: Path) -> None:
    documents = list(find_documents(copy(tmp_path), STORIES))
    counted = asyncio.run(count(STORIES, documents))
    assert [document.path for document in counted.accepted] == ["good.yaml", "README.md:3"]
    assert [one.path for one in counted.by_variant["accepted with `admission.lenient`"]] == ["stray.yaml"]
    assert [(document.path, reason) for document, reason in counted.rightly] == [
        ("scaffold.yaml", "a scaffold without a `spec`")
    ]
    ((ours, problem),) = counted.ours
    assert (ours.path, problem.path) == ("ours.yaml", "spec.steps[0].type")

    written = section(STORIES, counted)
    assert "| documents | 5 |" in written and "Of the 4 that are not rightly refused, 3 are taken (75 %)." in written
    assert "planted" not in written, "no text of a document is written"


def test_sections_of_languages_that_are_not_in_the_copy_stay() -> None:
    title = LANGUAGES[0].title
    before = page({title: f"## {title}\n\nold\n"}, "")
    assert page({}, before) == before
    assert "new" in page({title: f"## {title}\n\nnew\n"}, before)


def test_blocks_inside_of_other_fences_are_not_documents() -> None:
    text = "````md\n```yaml\na: 1\n```\n````\n  ```yml\n  b: 2\n  ```\n"
    assert list(yaml_blocks(text)) == [(6, "b: 2\n")]
