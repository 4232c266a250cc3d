"""What an operator may set (section 1.10)."""

import pytest

from perdure.dialects.story.plan.settings import DEFAULTS, BadSetting, Queue, Settings


def test_defaults_are_the_shipped_ones() -> None:
    """STY-017, STY-018: offloaded data are read in process, inline limits are ours."""
    assert DEFAULTS.offloaded_data == "controller"
    assert DEFAULTS.max_inline_inputs_size == 262_144
    assert DEFAULTS.max_inline_size == 65_536
    assert DEFAULTS.different() == {}
    assert DEFAULTS.queue("default") == Queue(0, 0, 60)
    assert DEFAULTS.queue("other") == Queue(0, 0, 0)


def test_settings_are_read_by_key_and_told_again() -> None:
    entries = {
        "timeout.approval-default": "24h",
        "references.cross-namespace-policy": "grant",
        "storyrun.queue.gpu.concurrency": 2,
        "storyrun.queue.default.default-priority": 5,
        "storage.drivers": ["file", "s3"],
    }

    settings = Settings.read(entries)

    assert settings.cross_namespace == "grant"
    assert settings.queue("gpu") == Queue(2, 0, 0)
    assert settings.queue("default") == Queue(0, 5, 60)
    assert settings.storage_drivers == ("file", "s3")
    assert settings.different() == dict(sorted(entries.items()))
    assert Settings.read(settings.different()) == settings
    assert "timeout.approval-default" in settings.explicit_keys


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"timeout.default-stp": "5m"}, "did you mean 'timeout.default-step'"),
        ({"timeout.default-step": "soon"}, "not a duration"),
        ({"timeout.default-step": "0s"}, "positive"),
        ({"retry.max-retries": "3"}, "an integer"),
        ({"retry.max-retries": True}, "an integer"),
        ({"references.cross-namespace-policy": "maybe"}, "one of deny, grant, allow"),
        ({"storyrun.queue.x.speed": 1}, "concurrency"),
        ({"storyrun.queue.x.concurrency": -1}, "0 or more"),
    ],
)
def test_bad_settings_are_refused(entries: dict[str, object], words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        Settings.read(entries)
