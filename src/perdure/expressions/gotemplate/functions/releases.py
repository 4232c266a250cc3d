"""Semantic versions in templates."""

from perdure.expressions.gotemplate.functions.library import SLOW, TEXT, takes
from perdure.expressions.gotemplate.versions import parse_version, satisfies

FUNCTIONS = {
    "semver": takes(parse_version, TEXT, price=SLOW),
    "semverCompare": takes(
        lambda constraint, version: satisfies(parse_version(version), constraint), TEXT, TEXT, price=SLOW
    ),
}
