"""Resources in texts: read, judged beside each other, and every problem named with its place and its remedy."""

from perdure.dialects.story.document.validation import Judged, judge, judge_resource, tidied

__all__ = ["Judged", "judge", "judge_resource", "tidied"]
