"""The rules of the language in a few words each, and what is said of those that no test cites.

`python -m tests.dialects.story.rules` writes the coverage page; a test keeps it true.
"""

import re
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
PAGE = HERE.parents[2] / "docs" / "reference" / "story-coverage.md"
PACKAGES = (HERE, TESTS / "expressions", TESTS / "providers", TESTS / "services")

RULES = """
001 documents and their kinds|002 references|003 unknown fields|004 fields for Kubernetes alone
005 streaming is realtime|006 status of a Story|007 S3 needs a driver|008 layers of execution settings
009 code of templates|010 input over the Engram's|011 modes of Engrams|012 declared output keys|013 mapping of events
014 composed names|015 who has StepRuns|016 idempotency keys|017 where offloaded data are read|018 inline limits
019 all problems at once|020 equal specs|021 checks again at run time|022 size of a Story|023 ranges and enums
024 step names|025 ref or type|026 needs|027 cycles|028 gate and wait are batch|029 size of blocks
030 blocks are objects|031 executeStory|032 wait|033 gate|034 parallel, sleep and stop|035 templates are parsed
036 roots of templates|037 runtime in batch|038 requires|039 timeouts and schemas|040 transports of Stories
041 Engrams of steps|042 other namespaces|043 steps in templates|044 Engrams|045 Impulses|046 Transports
047 creating StoryRuns|048 runs under a token|049 StoryRuns are immutable|050 StepRuns|051 StoryTriggers
052 EffectClaims|053 order means nothing|054 edges from templates|055 graphs that cannot run|056 passes
057 blocks are sequential|058 skipped dependencies|059 allowed failures satisfy|060 if|061 truth of conditions
062 conditions that raise|063 dependencies without output|064 fail fast|065 queued and blocked steps
066 continue on failure|067 skips propagate|068 a failed run cannot succeed|069 allowed failures are listed
070 dependencies in cleanup|071 concurrency of a Story|072 queues and global limits|073 queued steps|074 priorities
075 saturation|076 queue of sub-runs|077 branches in queues|078 story order|079 recursion|080 depths|081 condition
082 outputs of primitives|083 sleep|084 bad durations|085 stop|086 what stop ends|087 executeStory inputs
088 one child|089 waiting for a child|090 not waiting|091 missing and refusing children|092 parallel
093 branches are rendered|094 how parallel ends|095 branches in steps|096 wait|097 when wait looks|098 timeout of wait
099 poll interval|100 denied functions in until|101 gate|102 decisions|103 early and late decisions
104 timeout of gate|105 deciding|106 startedAt and finishedAt|107 deadlines are durable|270 which primitives where
271 no map primitive|108 phases and reasons|109 conditions|110 further reasons|111 run start|112 attempts and times
113 runs that waited for a Story|114 paused steps|115 counters|116 active and completed|117 terminal phases stay
118 missing references block|119 reported transitions|120 whose status counts|121 results|122 the run's error
123 exit codes|124 in-process Engrams|125 when to retry|126 scheduled retries|127 backoff|128 nextRetryAt
129 side effects|130 primitives are not retried|131 recommendations|132 never retried|133 step timeout
134 story timeout|135 after the story timeout|136 input that stays missing|137 compensations|138 finally
139 cleanup is batch|140 the table of ends|141 skipped compensations|142 failed steps of a block
143 output after finally|144 names from tokens|145 input hash|146 hashes of logical inputs|147 names of triggers
148 decisions of triggers|149 decisions are final|150 annotations of triggered runs|151 large inputs|152 without token
153 with token|154 delivery policy|155 dedupe|156 trigger retry|157 throttle|158 counters of Impulses|159 session keys
160 cron|161 what cron fires|162 cron tokens|273 the trigger client|163 at least once|164 recordEffect
165 details of effects|166 names of claims|167 executeEffectOnce|168 already recorded|169 claim and ledger together
170 phase of claims|171 life of claims|172 redrive and effects|272 guarantees|173 emitSignal|174 stored signals
175 payload cap|176 sequence of signals|177 signals in steps|178 replay|179 restart|180 reattach|181 restart metadata
182 lost executions|183 redrive|184 redrive from a step|185 redrive and cleanup|186 cancel|187 graceful timeout
188 what cancel ends|189 clean-up of children|190 retention|191 deleting runs|192 one transaction
274 status stays small|193 what is a template|194 the template language|195 roots without dot|196 aliases
197 what steps hold|198 types of results|199 typed functions|200 missing keys|201 functions|202 time and chance
203 functions of Stories|204 limits of rendering|205 rendered once|206 numbers|207 offloaded data in templates
208 paths into offloaded data|209 schema defaults|210 when inputs are judged|211 drafts of JSON Schema
212 strict at run time|213 requires at run time|214 order of an Engram step|215 output schema|216 postExecution
217 output|218 missing data in output|219 storage references|220 config and secret references|221 offloading
222 schema references|223 near the limit|224 caching is opt-in|225 cache keys|226 cache entries|227 cache hits
228 cache writes|229 no cache on side effects|230 workers of a stream|231 per packet|232 messages
233 layers of settings|234 defaults of streaming|235 best effort|236 at least once|237 deduplication|238 flow control
239 routing rules|240 fan-in|241 partitions|242 hooks|243 startup|244 chunks|245 concurrency of cycles
246 end of a stream|247 primitives per packet|248 recording|249 what the hub had|250 cross-namespace policy|251 grants
252 references again at run time|253 version pins|254 pins at run time|255 runs snapshot|256 structured errors
257 types by text|258 defaults of errors|259 redaction|260 metrics|261 events|262 trace and labels|263 logs
264 history|265 what is missing is refused|280 absent data in identities|281 conditions that are never true
282 effects among callers|283 references by place|284 names and restarts
"""

ABSENT = {
    "006": "`get story -o json` and `describe story`: tests/cli, test_story_resources",
    "249": "an observation about the original",
    "260": "tests/server/test_metrics; `bobravoz_hub_replay_last_ack` is on the page of `serve --health` alone",
    "021": "the rules at run time: STY-111, 212, 252",
    "113": "none waits: a run without its Story is refused (STY-047), and is pinned to it as it is created",
    "146": "values are offloaded by the store, below what is hashed",
    "168": "the kernel answers with the recorded result, and a claim has one holder at a time",
    "171": "claims are the run's own and go with it",
    "189": "runs are removed as trees, by `perdure prune`",
    "190": "the operator's: `perdure prune` removes what ended before a time, and nothing else does",
    "191": "tests of the store: a run goes with everything that belongs to it",
    "265": "a transport with another driver than `local`, and an Engram of mode job in a stream: tests/streams",
    **dict.fromkeys(map(str, range(230, 249)), "see [the rules of streaming](streaming-coverage.md)"),
}

PARTLY = {
    "008": "all levels but one: a StepRun is made by the engine alone and cannot be patched, so it carries no override",
    "146": "a storage reference that the caller gives is hashed as it is written",
}
"""Beside their tests: what of a rule does not hold."""


def titles() -> dict[str, str]:
    rows = re.findall(r"(\d{3}) ([^|\n]+)", RULES)
    return {number: title.strip() for number, title in rows}


_CITED = re.compile(r"STY-\d{3}(?:(?:,| to| and|, and)\s+(?:STY-)?\d{3}\b)*")
_PART = re.compile(r"(to )?(?:STY-)?(\d{3})")


def cited_in(text: str) -> list[str]:
    """`STY-010`, `STY-010, 011` and `STY-010 to 012` are citations."""
    numbers: list[str] = []
    for citation in _CITED.findall(text):
        for is_range, number in _PART.findall(citation):
            first = int(numbers[-1]) + 1 if is_range and numbers else int(number)
            numbers += [f"{member:03}" for member in range(first, int(number) + 1)]
    return numbers


def citations() -> dict[str, list[str]]:
    """Rule → where it is cited: scenario folders and tests."""
    cited: dict[str, list[str]] = {}
    for file in sorted((HERE / "cases").glob("*/expectation.yaml")):
        for number in sorted(set(cited_in(file.read_text()))):
            cited.setdefault(number, []).append(f"case {file.parent.name}")
    for room in PACKAGES:
        for file in sorted(room.rglob("test_*.py")):
            for number in sorted(set(cited_in(file.read_text()))):
                cited.setdefault(number, []).append(file.stem)
    return cited


def page() -> str:
    cited = citations()
    lines = [
        "# Story rules and the tests that prove them",
        "",
        "Generated by `python -m tests.dialects.story.rules`. A rule is covered by the tests and scenario folders",
        "that cite it; if there is none, the reason is given in italics.",
        "",
        "| Rule | Subject | Tests, or the reason why there is none |",
        "| --- | --- | --- |",
    ]
    for number, title in sorted(titles().items()):
        places = cited.get(number, [])
        shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        shown = shown or f"*{ABSENT.get(number, 'not yet')}*"
        lines.append(f"| STY-{number} | {title} | {shown}{f'; *{PARTLY[number]}*' if number in PARTLY else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
