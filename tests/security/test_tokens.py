"""Tokens that data give reach no run of another document."""

from perdure.engine.random_ids import run_id_for_name, run_id_for_token


def test_a_name_with_the_mark_between_names_is_no_other_run() -> None:
    """Who gives tokens does not reach the runs of another document."""
    assert run_id_for_token("flow", "pay\x1fa", "b") != run_id_for_token("flow", "pay", "a\x1fb")
    assert run_id_for_token("flow", "\x1f", "") != run_id_for_token("flow", "", "\x1f")


def test_tokens_of_earlier_versions_name_the_same_runs() -> None:
    assert run_id_for_token("flow", "pay", "17") == "pay-17-b1da655b86306c35"
    assert run_id_for_name("story", "default", "deploy") == "deploy-6148a9a7e3a8e9c9"
