"""The rules of streaming in a few words each, and what is said of those that no test cites.

`python -m tests.streams.rules` writes the coverage page; a test keeps it true.
"""

import re
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
PAGE = TESTS.parent / "docs" / "reference" / "streaming-coverage.md"

RULES = """
001 streaming is realtime|002 concurrency|003 transports of Stories|004 Transports|005 codecs|006 local
007 TransportBindings|008 layers of settings|009 defaults|010 defaults of delivery|011 gate and wait are batch
012 roots of templates|013 with reads no steps|014 runtime|015 enums|016 numbers|017 lanes and rules|018 partition keys
019 further refusals|020 modes of Engrams|021 everything starts at once|022 if gates packets|023 phases of steps
024 with is rendered once|025 timeouts|026 one owner|027 workers that return or raise|028 failures of one step
029 when the main block is over|030 ends of steps|031 cleanup|032 output|033 normal end|034 cancel
035 clean-up of children|036 redrive|037 from a batch Story|038 messages|039 metadata alone|040 kinds
041 payload and binary|042 limits|043 envelope|044 steps in templates|045 packet|046 metadata of the engine
047 fan-out|048 if per packet|049 p2p|050 routing rules|051 downstream limits|052 runtime per packet
053 offloaded data|054 fan-in|055 partitions|056 lanes|057 built-in steps|058 executeStory|059 fed by hooks
060 best effort|061 message timeout|062 sequences|063 done|064 replay|065 replay modes|066 durable replay|067 hybrid
068 effects|069 publications and done|070 buffers|071 drops|072 flush|073 full under at least once|074 credits
075 pause and resume|076 channel|077 journeys|078 guards|079 hooks|080 hooks once|081 hook packets|082 chunks
083 incomplete chunks|084 lost sessions|085 startup|086 error messages|087 heartbeats|088 handoff|089 generations
090 termination|091 Python workers|092 packets from outside|093 commands|094 testing|095 signals and effects
096 recording|097 metrics|098 watermark|099 tracing|100 status.stream|101 status of the run|102 history
110 NATS|111 rows in the store|112 remote workers|113 speed|120 take-over|121 outside packets are inbound
122 one transaction|123 lane caps|124 chunks by publish|125 heartbeats are exempt|126 pause under best effort
127 only needs makes edges|128 phases when closed|129 last numbers|130 identity of publications|131 chosen ids
132 whose settings|133 counters|134 runtime of built-in steps|135 history of pauses|136 retries of workers
137 states of built-in steps|138 open joins at the end|139 identity|140 hybrid labels|141 streaming_engram
"""

UNTESTED = {
    "049": "`StreamGraph.is_direct`; in process there is one path",
    "076": "a publish under best effort never blocks here (STR-126), so no send timeout ends a session",
    "099": "`traceparent` in metadata, sampled; journeys of packets are not exported as spans",
    "088": "the workers of a process that ends are stopped before the next owner starts its own, also with blue_green",
    "112": "a worker must be connected to the server that carries the topology",
    "113": "`python -m bench.streams` measures it; docs/performance.md has the figures",
}


def titles() -> dict[str, str]:
    entries = [entry for line in RULES.strip().splitlines() for entry in line.split("|")]
    return {entry[:3]: entry[4:] for entry in entries}


def citations() -> dict[str, list[str]]:
    """By rule: the test files that cite it."""
    files_by_number: dict[str, set[str]] = {}
    for folder in (HERE, TESTS / "dialects" / "story", TESTS / "server"):
        for file in sorted(folder.rglob("test_*stream*.py" if folder.name == "server" else "test_*.py")):
            for number in re.findall(r"STR-(\d{3})", file.read_text(encoding="utf-8")):
                files_by_number.setdefault(number, set()).add(file.stem)
    return {number: sorted(files) for number, files in files_by_number.items()}


def page() -> str:
    cited = citations()
    lines = [
        "# Rules of streaming Stories",
        "",
        "Each rule of the contract, with the tests that cite it. In italics: what holds instead, or is missing.",
        "",
        "| Rule | About | Tests |",
        "| --- | --- | --- |",
    ]
    for number, title in titles().items():
        note = f"*{UNTESTED[number]}*" if number in UNTESTED else ""
        tests = ", ".join(cited.get(number, ()))
        lines.append(f"| STR-{number} | {title} | {'; '.join(part for part in (tests, note) if part)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
