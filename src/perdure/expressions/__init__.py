"""Expression languages, one package each: CEL and its use in MWL, Go templates, Jinja, and RE2 patterns.

Pure: no clock, no randomness, no I/O. They know no workflow language.
"""
