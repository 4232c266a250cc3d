"""Regular expressions with RE2's syntax, in time linear in the text.

Answers one question: does the pattern occur in the text? No groups are extracted, nothing backtracks, and every search
pays for its steps through the `charge` that is passed in.
"""

from perdure.expressions.regex.charset import BadPattern
from perdure.expressions.regex.matcher import Pattern, compile_pattern, price_of_compiling

__all__ = ["BadPattern", "Pattern", "compile_pattern", "price_of_compiling"]
