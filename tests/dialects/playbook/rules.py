"""The rules of the language in a few words each, and what is said of those that no test cites.

`python -m tests.dialects.playbook.rules` writes the coverage page; a test keeps it true.
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "reference" / "playbook-coverage.md"

RULES = """
001 root keys|002 apiVersion and kind|003 metadata|004 workflow and step names|005 hazards of YAML|006 executor
007 entry_step, final_step, no_next_is_error exist|008 requires|009 closed words of completion|010 keychain entries
011 workload and payload merge|012 templates in workload|013 workbook|014 step keys|015 tool or next|016 loop needs tool
017 shapes of tool|018 labels and kinds|019 unknown kinds|020 task keys|021 task policy shape|022 rule shape
023 directives and their fields|024 misplaced fields of then|025 jump targets|026 siblings of rules|027 admission shape
028 router shape|029 guards are templates|030 loop shape|031 no task control elsewhere|032 legacy words|033 warnings
034 all problems at once|035 knobs are layered|036 only knobs are layered|040 a run consumes its token|041 token record
042 tokens are never merged|043 the marking is a function of the log|044 duties of the server|045 duties of the worker
046 a step without tool|047 tasks of a pipeline never overlap|048 first in, first out|050 the first step is the entry
051 entry_step|052 exactly one initial token|053 the initial token passes admission|054 a request's own entry
060 admission rules in order|061 no match denies|062 what guards see|063 denied tokens wait or are discarded
064 patches ask gates again, at once|065 a raising guard does not match|066 answers are recorded when they change
067 admission is not revoked|070 program counter|071 how a pipeline ends|072 the step's result
073 boundary of a step-run
074 one outcome per attempt|075 error kinds|076 helper maps|077 locals|078 _prev|079 results are overwritten
080 without policy|081 unmatched outcomes|082 raising task guards|083 patches before directives|084 directives
085 attempts are a total|086 attempts belong to a task-run|087 waits between attempts|088 retries inside a tool
089 visits are bounded|090 a lost worker costs no attempt|091 tool kinds|092 fields are rendered, code is not|093 noop
094 python|095 http|096 shell|097 postgres and duckdb|098 container and script|099 workbook calls|100 artifact, secrets
101 kinds nobody offers|102 loop runs the pipeline per element|103 what a loop may run over|104 empty loops|105 iter
106 iteration ids|107 sequential loops|108 parallel loops are bounded|109 fail fast and best effort
110 one boundary per looped run|111 the loop's result|112 ctx patches of parallel loops|113 reducers|114 cursor loops
115 arcs are evaluated once after every boundary|116 exclusive and inclusive|117 routing after failure|118 what arcs see
119 the event|120 args are bound and not inherited|121 raising guards and bad args|122 handled failures
123 what next.evaluated records|231 large args|124 branch end|125 no_next_is_error|126 quiescence and stranded tokens
230 waiting, disabled, deadlock|232 settling order|127 quiescence is never inferred|128 step-runs are bounded
129 no implicit join|130 join trackers|131 fan-out|132 shard identity|133 fan-in tracker|134 how a fan-in ends
135 fan-out settings|136 ctx and events of shards|137 statuses|138 on_failure|139 branch accounting|140 final_step
141 final_step runs once|142 the finalization token|143 the summary|144 a failing final step|145 closing events
146 scopes|147 templates and undefined|148 native values|149 truth of guards|150 filters|151 limits of rendering
152 patches and dotted keys|153 ctx.patched|154 concurrent writers|155 ctx is bounded|156 patches from outside
157 steps|158 compatibility profile io|160 event names|161 envelopes|162 idempotent ingest|163 ids and names of events
164 attempt events|165 order of events|167 replay|168 event size|170 inline results|171 result stores|172 references
173 select|174 explicit resolution|175 missing bodies|176 manifests|177 result scopes|178 no credentials in references
180 keychain resolution|181 keychain kinds|182 keychain scopes|183 renewal|184 where keychain is readable|185 taint
186 auth names|190 cancel|191 cancel reaches workers|192 pause|193 timeouts|194 leases|195 resume at the open task
196 transactional dispatch|197 pools|198 restart|200 child playbooks|201 a child is a boundary|202 a child's result
203 waiting holds no worker|204 retry and depth of children|233 noop has no special role|234 command line
210 registration|211 --set|212 execute|213 status answer|214 local runtime
240 what is charged, what keys may read
"""

ABSENT = {
    "088": "no tool of ours retries inside an attempt",
    "162": "the kernel checks every result against what is open; there is no second ingest",
    "194": "the kernel's deliveries; see the engine's tests",
    "196": "the kernel: a recorded task is the request to run it",
    "198": "the engine's tests of recovery hold for every language",
    "212": "not yet: no HTTP surface",
    "214": "the whole of Perdure",
    "149": "tests of the template room",
    "150": "tests of the template room",
    "151": "tests of the template room",
    "044": "there is one decider; the split of duties is the kernel's",
    "045": "there is one decider; the split of duties is the kernel's",
}


NOTED = {
    "185": "credentials are read on the host and live in the worker's memory, none is stored and so none is encrypted; "
    "a secret that is written into a document stands in it, and `check` warns",
}
"""What is to be said of rules besides who tests them."""


def titles() -> dict[str, str]:
    result = re.findall(r"(\d{3}) ([^|\n]+)", RULES)
    return {number: title.strip() for number, title in result}


def citations() -> dict[str, list[str]]:
    """Rule → where it is cited: scenario folders and tests."""
    cited: dict[str, list[str]] = {}
    for folder in sorted((HERE / "cases").iterdir()):
        rules = json.loads((folder / "expectation.json").read_text()).get("rules", "")
        for number in re.findall(r"PBK-(\d{3})", rules):
            cited.setdefault(number, []).append(f"case {folder.name}")
    for file in sorted(HERE.parents[1].rglob("test_*.py"), key=lambda file: (file.parent != HERE, file.stem)):
        for number in sorted(set(re.findall(r"PBK-(\d{3})", file.read_text()))):
            cited.setdefault(number, []).append(file.stem)
    return cited


def page() -> str:
    cited = citations()
    lines = [
        "# Playbook rules and the tests that prove them",
        "",
        "Generated by `python -m tests.dialects.playbook.rules`. A rule is covered by the tests and scenario folders",
        "that cite it; if there is none, the reason is given in italics.",
        "",
        "| Rule | Subject | Tests, or the reason why there is none |",
        "| --- | --- | --- |",
    ]
    for number, title in sorted(titles().items()):
        places = cited.get(number, [])
        view = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        output = view or f"*{ABSENT.get(number, 'not tested')}*"
        output += f"; *{NOTED[number]}*" if number in NOTED else ""
        lines.append(f"| PBK-{number} | {title} | {output} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
