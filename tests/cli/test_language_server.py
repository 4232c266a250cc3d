"""`lsp`, driven by a client of the protocol: one real process, as an editor starts it."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient
from tests.cli.commandline import CommandLine

from perdure.cli.language_server import workspace_texts
from perdure.engine.resources.document_validation import DocumentValidator

R = TypeVar("R")

STORY = """\
# 😀 é
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: letters}
spec:
  steps:
    - name: write-it
      ref: {name: writer}
      with: {text: "{{ inputs.text }}"}
    - name: send
      needs: [write-it]
      ref: {name: writer}
      with: {text: "😀 {{ steps.write_it.output.text }}"}
"""
ENGRAM = """\
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: writer}
spec: {templateRef: {name: echo}}
"""
FLOW = """\
{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "wait",
 "steps": {"wait": {"action": "Sleep", "for": "PT1S", "next": "end"},
           "end": {"action": "Return"}}}
"""


class Editor:
    """A client with an event loop of its own, so that plain tests share one server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.published: dict[str, list[lsp.PublishDiagnosticsParams]] = {}
        self._arrived = threading.Condition()
        self.client = LanguageClient("editor", "1")
        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._publish(params))
        self.versions: dict[str, int] = {}

    def begin(self, *options: str) -> lsp.InitializeResult:
        command = [sys.executable, "-m", "perdure", "lsp", "--stdio", *options]
        self.do(self.client.start_io(*command, cwd=str(self.folder)))
        folder = lsp.WorkspaceFolder(self.folder.as_uri(), "letters")
        encodings = lsp.GeneralClientCapabilities(position_encodings=[lsp.PositionEncodingKind.Utf16])
        answer = self.do(
            self.client.initialize_async(
                lsp.InitializeParams(lsp.ClientCapabilities(general=encodings), workspace_folders=[folder])
            )
        )
        self._later(lambda: self.client.initialized(lsp.InitializedParams()))
        return answer

    def end(self) -> int | None:
        self.do(self.client.shutdown_async(None))
        self._later(lambda: self.client.exit(None))
        process = self.client._server
        assert process is not None
        code = self.do(process.wait())
        self.do(self.client.stop())  # type: ignore[no-untyped-call]
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        return code

    def do(self, question: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(20)

    def _later(self, work: Any) -> None:
        self._loop.call_soon_threadsafe(work)

    def _publish(self, params: lsp.PublishDiagnosticsParams) -> None:
        with self._arrived:
            self.published.setdefault(params.uri, []).append(params)
            self._arrived.notify_all()

    def address(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> list[lsp.Diagnostic]:
        self.versions[name] = 1
        item = lsp.TextDocumentItem(self.address(name), "yaml", 1, text)
        self._later(lambda: self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item)))
        return self.problems(name)

    def type(self, name: str, text: str) -> None:
        """Replace the whole text."""
        self.versions[name] += 1
        document = lsp.VersionedTextDocumentIdentifier(self.versions[name], self.address(name))
        changes = [lsp.TextDocumentContentChangeWholeDocument(text)]
        params = lsp.DidChangeTextDocumentParams(document, changes)
        self._later(lambda: self.client.text_document_did_change(params))

    def problems(self, name: str) -> list[lsp.Diagnostic]:
        """What is published about the present text."""

        def latest() -> lsp.PublishDiagnosticsParams | None:
            published = self.published.get(self.address(name), [])
            return next((each for each in published if each.version == self.versions[name]), None)

        with self._arrived:
            assert self._arrived.wait_for(lambda: latest() is not None, 20)
            published = latest()
        assert published is not None
        return list(published.diagnostics)

    def at(self, name: str, text: str, words: str) -> dict[str, Any]:
        """The position behind these words, as the protocol counts: in units of UTF-16."""
        offset = text.index(words) + len(words)
        line = text.count("\n", 0, offset)
        before = text[text.rfind("\n", 0, offset) + 1 : offset]
        position = lsp.Position(line, len(before.encode("utf-16-le")) // 2)
        return {"text_document": lsp.TextDocumentIdentifier(self.address(name)), "position": position}


def cut(text: str, place: lsp.Range) -> str:
    """What is at a range, as the protocol counts."""
    line = text.split("\n")[place.start.line].encode("utf-16-le")
    assert place.start.line == place.end.line
    return line[2 * place.start.character : 2 * place.end.character].decode("utf-16-le")


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    folder = tmp_path_factory.mktemp("letters")
    (folder / "engrams.yaml").write_text(ENGRAM)
    (folder / "tasks.py").write_text(
        'import perdure\n\nprint("loaded")\n\n@perdure.provider("stamp")\ndef stamp(text: str) -> str:\n'
        '    """Stamp a letter."""\n    return text\n'
    )
    started = Editor(folder)
    answer = started.begin("--load", "tasks.py")
    assert answer.server_info is not None and answer.server_info.name == "perdure"
    assert answer.capabilities.rename_provider and answer.capabilities.completion_provider
    yield started
    assert started.end() == 0


def test_problems_are_shown_while_one_types_and_go_away(editor: Editor) -> None:
    """The document is checked beside the files of its folder, half-written or not, and only its last text counts."""
    assert editor.open("a.yaml", STORY) == []
    editor.type("a.yaml", STORY.replace("needs: [write-it]", "needs: [writ"))
    (broken, *_) = editor.problems("a.yaml")
    assert broken.code == "DOC-SYNTAX" and broken.source == "perdure"
    for step in ("w", "wr", "wri"):
        editor.type("a.yaml", STORY.replace("needs: [write-it]", f"needs: [{step}]"))
    problems = editor.problems("a.yaml")
    versions = [published.version for published in editor.published[editor.address("a.yaml")]]
    assert versions == [1, 2, 5], "the texts in between are not checked to the end"
    (unknown,) = [problem for problem in problems if "wri" in problem.message]
    assert unknown.severity == lsp.DiagnosticSeverity.Error
    assert cut(STORY.replace("[write-it]", "[wri]"), unknown.range) == "wri"
    editor.type("a.yaml", STORY)
    assert editor.problems("a.yaml") == []


def test_findings_are_shown_and_documents_of_others_are_left_alone(editor: Editor) -> None:
    flow = FLOW.replace('"next": "end"', '"next": "wait"')
    findings = editor.open("loop.json", flow)

    (dead,) = [finding for finding in findings if finding.code == "dead-step"]
    assert dead.severity == lsp.DiagnosticSeverity.Error and "Remove it" in dead.message
    assert cut(flow, dead.range) == '"end": {"action": "Return"}}}'
    assert editor.open("pod.yaml", "apiVersion: v1\nkind: Pod\nspec: ]\n") == []
    assert (
        editor.open("huge.yaml", f"apiVersion: noetl.io/v2\nkind: Playbook\nx: {'a' * 1_000_000}\n")[0].code
        == "LSP-LIMIT"
    )


def test_the_document_is_completed_explained_and_searched(editor: Editor) -> None:
    editor.open("b.yaml", STORY)
    half = f"{STORY}    - name: last\n      needs: [write-it, s"
    editor.type("b.yaml", half)
    at = editor.at("b.yaml", half, "write-it, s")
    items = editor.do(editor.client.text_document_completion_async(lsp.CompletionParams(**at)))
    assert isinstance(items, lsp.CompletionList)
    (send,) = [item for item in items.items if item.label == "send"]
    assert isinstance(send.text_edit, lsp.TextEdit)
    assert (send.text_edit.new_text, cut(half, send.text_edit.range)) == ("send", "s")

    at = editor.at("b.yaml", half, "{{ steps.wri")
    shown = editor.do(editor.client.text_document_hover_async(lsp.HoverParams(**at)))
    assert shown is not None and isinstance(shown.contents, lsp.MarkupContent) and shown.range is not None
    assert "write_it" in shown.contents.value and cut(half, shown.range) == "write_it"

    definition = editor.do(editor.client.text_document_definition_async(lsp.DefinitionParams(**at)))
    assert isinstance(definition, list) and isinstance(definition[0], lsp.Location)
    assert (definition[0].range.start.line, cut(half, definition[0].range)) == (6, "write-it")
    at = editor.at("b.yaml", half, "ref: {name: wri")
    definition = editor.do(editor.client.text_document_definition_async(lsp.DefinitionParams(**at)))
    assert isinstance(definition, list) and isinstance(definition[0], lsp.Location)
    assert definition[0].uri == editor.address("engrams.yaml") and cut(ENGRAM, definition[0].range) == "writer"

    at = editor.at("b.yaml", half, "name: send")
    context = lsp.ReferenceContext(include_declaration=True)
    uses = editor.do(editor.client.text_document_references_async(lsp.ReferenceParams(context, **at)))
    assert uses is not None and len(uses) == 1

    document = lsp.DocumentSymbolParams(at["text_document"])
    (story,) = editor.do(editor.client.text_document_document_symbol_async(document)) or []
    assert isinstance(story, lsp.DocumentSymbol) and story.children is not None
    assert [step.name for step in story.children] == ["write-it", "send", "last"]


def test_a_step_is_renamed_in_expressions_too_and_never_to_a_name_that_exists(editor: Editor) -> None:
    editor.open("c.yaml", STORY)
    at = editor.at("c.yaml", STORY, "needs: [wri")
    place = editor.do(editor.client.text_document_prepare_rename_async(lsp.PrepareRenameParams(**at)))
    assert isinstance(place, lsp.Range) and cut(STORY, place) == "write-it"
    edit = editor.do(editor.client.text_document_rename_async(lsp.RenameParams(new_name="draft-it", **at)))
    assert edit is not None and edit.changes is not None
    edits = edit.changes[editor.address("c.yaml")]
    assert sorted((cut(STORY, each.range), each.new_text) for each in edits) == [
        ("write-it", "draft-it"),
        ("write-it", "draft-it"),
        ("write_it", "draft_it"),
    ]
    with pytest.raises(JsonRpcException, match="already a step 'send'"):
        editor.do(editor.client.text_document_rename_async(lsp.RenameParams(new_name="send", **at)))


def test_a_document_is_drawn_and_loaded_providers_are_offered(editor: Editor) -> None:
    editor.open("flow.json", FLOW)

    def draw(*arguments: str) -> Any:
        params = lsp.ExecuteCommandParams("perdure.graph", list(arguments))
        return editor.do(editor.client.workspace_execute_command_async(params))

    assert re.search("flowchart|graph", draw(editor.address("flow.json"))["text"])
    assert draw(editor.address("flow.json"), "svg")["text"].startswith("<svg")
    with pytest.raises(JsonRpcException, match="no form 'png'"):
        draw(editor.address("flow.json"), "png")
    half = FLOW.replace('"action": "Sleep", "for": "PT1S"', '"action": "Call", "call": {"provider": ""')
    editor.type("flow.json", half)
    at = editor.at("flow.json", half, '"provider": "')
    items = editor.do(editor.client.text_document_completion_async(lsp.CompletionParams(**at)))
    assert isinstance(items, lsp.CompletionList)
    assert "mwl:provider.call/perdure/stamp/v1" in [item.label for item in items.items]
    with pytest.raises(JsonRpcException, match="cannot be drawn"):
        draw(editor.address("flow.json"))


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    perdure: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    done = perdure.here("lsp", code=2)

    assert "lsp needs a package: pygls" in done.err and "pip install 'perdure[lsp]'" in done.err


def test_the_settings_of_the_guide_start_this_server(perdure: CommandLine) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "editors.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    helix = tomllib.loads(blocks["toml"])
    command = [helix["language-server"]["perdure"]["command"], *helix["language-server"]["perdure"]["args"]]

    assert command == ["perdure", "lsp"]
    assert {language["language-servers"][0] for language in helix["language"]} == {"perdure"}
    assert 'cmd = { "perdure", "lsp" }' in blocks["lua"]
    assert 'command: "perdure", args: ["lsp"]' in blocks["js"]
    assert json.loads(blocks["json"])["main"] == "extension.js"
    assert "perdure.graph" in perdure("lsp", "--help").out


NEOVIM = """\
local function lines() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\\n") end
local function problems() return #vim.diagnostic.get(0) end
local function answer(method, line, column)
  vim.api.nvim_win_set_cursor(0, { line, column })
  local replies = vim.lsp.buf_request_sync(0, method, vim.lsp.util.make_position_params(0, "utf-16"), 20000)
  for _, reply in pairs(replies or {}) do return reply.result end
end
local seen = { vim.wait(20000, function() return problems() == 1 end), vim.diagnostic.get(0)[1].message }
vim.api.nvim_buf_set_lines(0, 6, 7, false, { "    - {name: b, ref: {name: echo}, needs: [first]}" })
table.insert(seen, (vim.wait(20000, function() return problems() == 0 end)))
table.insert(seen, answer("textDocument/hover", 6, 22).contents.value)
table.insert(seen, answer("textDocument/definition", 7, 44)[1].range.start.line)
local labels = {}
for _, item in ipairs(answer("textDocument/completion", 7, 43).items) do table.insert(labels, item.label) end
table.insert(seen, labels)
vim.api.nvim_win_set_cursor(0, { 6, 13 })
vim.lsp.buf.rename("begin")
table.insert(seen, (vim.wait(20000, function() return lines():find("needs: %[begin%]") ~= nil end)))
io.stdout:write(vim.fn.json_encode(seen))
vim.cmd("qa!")
"""


@pytest.mark.skipif(shutil.which("nvim") is None, reason="needs Neovim")
def test_neovim_with_the_settings_of_the_guide(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "editors.md").read_text(encoding="utf-8")
    settings = next(text for text in re.findall(r"^```lua\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    head = "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: s}\nspec:\n  steps:\n"
    steps = "    - {name: first, ref: {name: echo}}\n    - {name: b, ref: {name: echo}, needs: [frst]}\n"
    for name, text in {"init.lua": settings, "s.yaml": head + steps, "play.lua": NEOVIM, "tasks.py": ""}.items():
        (tmp_path / name).write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["nvim", "--headless", "-u", "init.lua", "s.yaml", "-c", "luafile play.lua", "-c", "cquit"]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=100, check=True
    )

    seen = json.loads(done.stdout)
    assert seen[:3] == [True, "step 'b' lists unknown dependency 'frst' in needs; did you mean 'first'?", True]
    assert "Engram that does the work of the step" in seen[3]
    assert seen[4:] == [5, ["first", "b"], True]


def test_of_a_folder_only_files_are_read_and_no_more_than_a_document_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link may lead to a device without end, and not every file says how large it is."""
    (tmp_path / "device.yaml").symlink_to("/dev/null")
    (tmp_path / "size.yaml").symlink_to("/proc/self/status")
    (tmp_path / "story.yaml").write_text("kind: Story\n")
    monkeypatch.setattr(workspace_texts, "LARGEST", 20)
    texts = workspace_texts.WorkspaceTexts(DocumentValidator({}), {})
    texts.set_folders([tmp_path.as_uri()])

    texts_by_name = {address.rpartition("/")[2]: text for address, text in texts._texts()}

    assert texts_by_name.pop("story.yaml") == "kind: Story\n"
    assert {name: len(text) for name, text in texts_by_name.items()} in ({"size.yaml": 20}, {})  # only Linux has it
