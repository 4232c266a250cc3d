"""Stories: graphs of Engrams, written in YAML as resources."""

from perdure.dialects.story.language import Story

__all__ = ["Story"]
