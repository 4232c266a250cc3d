"""The streaming examples run and give what they promise; so do the published Stories, with stub workers."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from perdure.services.story.engrams.registry import shared_engrams
from perdure.testing import load_source
from tests.nats_server import shared_server
from tests.streams.topologies import SEEN, Played, add_workers, played, states, story

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "stories" / "streams"

EXPECTED: dict[str, tuple[dict[str, Any], Any]] = {
    "transcribe_and_respond": ({"sounds": ["~hello~", "~~", "~bye~"]}, {"last": "You said: bye."}),
    "metrics": ({}, {"last": "d2"}),
    "join": ({}, {"due": 0}),
    "bookings": ({"database": "DATABASE"}, {}),
}


def load_examples() -> None:
    if "engram:call-audio@1.0.0" not in shared_engrams.streaming:
        load_source(str(EXAMPLES / "workers.py"))


def test_all_examples_are_listed() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_example_gives_what_it_promises(name: str, tmp_path: Path) -> None:
    load_examples()
    inputs, expected = EXPECTED[name]
    values = {key: str(tmp_path / "bookings.db") if value == "DATABASE" else value for key, value in inputs.items()}
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(EXAMPLES / f"{name}.yaml", values)
        assert await handle.result() == expected

    if name == "bookings":
        with sqlite3.connect(tmp_path / "bookings.db") as database:
            assert [amount for (amount,) in database.execute("SELECT amount FROM bookings")] == list(range(20))


def test_the_guide_runs(tmp_path: Path) -> None:
    """What the guide shows in Python is valid, and what it asserts is true."""
    text = (ROOT / "docs/guide/story/streaming.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {"microphone": "guide-microphone", "transcriber": "guide-transcriber", "responder": "guide-responder"}
    code = "\n".join(blocks)
    for name, other in names.items():
        code = code.replace(f'streaming_engram("{name}")', f'streaming_engram("{other}")')

    scope: dict[str, Any] = {"__name__": "guide"}
    exec(compile(code, "streaming.md", "exec"), scope)
    assert set(names) <= set(scope) and "send" in scope


PUBLISHED = {
    "streaming-with-cleanup": """
  steps:
  - name: transcribe
    ref:
      name: whisper-transcriber
  - name: respond
    ref:
      name: llm-responder
    needs: ["transcribe"]
  compensations:
  - name: release-session
    ref:
      name: session-cleanup
  finally:
  - name: log-metrics
    ref:
      name: metrics-reporter
""",
}


@pytest.mark.parametrize("driver", ["local", "nats"])
@pytest.mark.parametrize("fails", [False, True])
async def test_the_published_story_with_cleanup_runs_as_written(tmp_path: Path, fails: bool, driver: str) -> None:
    """The sixth and seventh thing: release-session runs only on failure, log-metrics after every end."""
    add_workers()
    SEEN.clear()
    if "engram:whisper-transcriber@1.0.0" not in shared_engrams.streaming:

        @perdure.streaming_engram("whisper-transcriber")
        async def whisper(config: Any, messages: Any, context: Any) -> None:
            await context.publish({"text": "hello"})

        @perdure.streaming_engram("llm-responder")
        def llm(config: Any, message: Any, context: Any) -> Any:
            if SEEN["fails"]:
                raise perdure.EngramError("the model is gone", retryable=False)
            SEEN["answers"].append(message.payload)

        for name in ("session-cleanup", "metrics-reporter"):

            @perdure.engram(name)
            def clean(inputs: Any, context: Any) -> Any:
                return {}

    if fails:
        SEEN["fails"].append(True)
    text = story(PUBLISHED["streaming-with-cleanup"], name="streaming-with-cleanup")
    async with played(tmp_path, text, driver=driver) as run:
        shown = await run.end()

    assert states(shown)["log-metrics"] == "Succeeded"
    assert states(shown)["release-session"] == ("Succeeded" if fails else "Skipped")
    assert shown["status"]["phase"] == ("Compensated" if fails else "Succeeded")
    assert SEEN["answers"] == ([] if fails else [{"text": "hello"}])


RESOURCES = """
apiVersion: transport.bubustack.io/v1alpha1
kind: Transport
metadata: {name: livekit-default}
spec: {provider: livekit, driver: local, supportedAudio: [{name: opus, sampleRateHz: 48000, channels: 1}]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: speech-to-text, namespace: workflows}
spec: {mode: deployment, templateRef: {name: speech-to-text}}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: intent-classifier, namespace: workflows}
spec: {mode: deployment, templateRef: {name: intent-classifier}}
"""

TRANSCRIBING = """
  - name: transcribe
    ref: {name: speech-to-text}
    transport: audio
    with: {model: whisper}
    runtime: {language: "{{ inputs.language }}"}
"""
CLASSIFYING = """
  - name: classify
    ref: {name: intent-classifier}
    needs: [transcribe]
    transport: audio
    with: {model: intent-v1}
    runtime:
      text: "{{ steps.transcribe.outputs.text }}"
      speaker: "{{ packet.identity }}"
"""


@pytest.mark.parametrize(
    ("name", "steps"), [("realtime-transcribe", TRANSCRIBING), ("realtime-intent", TRANSCRIBING + CLASSIFYING)]
)
@pytest.mark.parametrize("driver", ["local", "nats"])
async def test_the_published_realtime_stories_run_as_written(
    tmp_path: Path, name: str, steps: str, driver: str
) -> None:
    """The seventh thing: namespaces, a Transport of their own, `realtime`, `outputs` of a step, the speaker."""
    add_workers()
    SEEN.clear()
    if "engram:speech-to-text@1.0.0" not in shared_engrams.streaming:

        @perdure.streaming_engram("speech-to-text")
        def listen(config: Any, message: Any, context: Any) -> Any:
            SEEN["heard"].append((config, message.inputs, message.audio.payload))
            return {"text": message.audio.payload.decode().upper()}

        @perdure.streaming_engram("intent-classifier")
        def classify(config: Any, message: Any, context: Any) -> Any:
            SEEN["classified"].append((config, message.inputs))
            return {"intent": "greeting"}

    text = f"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {{name: {name}, namespace: workflows}}
spec:
  pattern: realtime
  inputsSchema: {{type: object, properties: {{language: {{type: string}}}}}}
  transports: [{{name: audio, transportRef: livekit-default, description: Sound of a room}}]
  steps:{steps}"""
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        resources = RESOURCES
        if driver == "nats":
            servers = f'{{nats: {{servers: ["{shared_server().address}"]}}}}'
            resources = RESOURCES.replace("driver: local", f"driver: nats, defaultSettings: {servers}")
        await engine.apply([AppliedDocument("resources.yaml", resources)])
        handle = await engine.start(text.encode(), {"language": "en"})
        run = Played(engine, handle.id)
        last = "classify" if name == "realtime-intent" else "transcribe"
        ready = await run.until(lambda shown: states(shown).get(last) == "Running")
        sound = {"payload": b"hello", "mimeType": "audio/opus"}
        await engine.publish(run.id, "transcribe", audio=sound, metadata={"participant.identity": "ada"})
        await run.until(lambda shown: shown["status"]["stepStates"][last]["stream"]["published"] == 1)
        await engine.cancel(run.id)
        shown = await run.end()

    assert ready["spec"]["storyRef"]["name"] == name
    assert SEEN["heard"] == [({"model": "whisper"}, {"language": "en"}, b"hello")]
    if last == "classify":
        assert SEEN["classified"] == [({"model": "intent-v1"}, {"text": "HELLO", "speaker": "ada"})]
    assert shown["status"]["phase"] == "Finished"
    binding = next(
        candidate for candidate in shown["transportBindings"] if candidate["spec"]["stepName"] == "transcribe"
    )
    assert binding["spec"]["transportRef"] == "livekit-default" and binding["spec"]["audio"]["codecs"] == ["opus"]
