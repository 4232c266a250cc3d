"""What languages bring besides their pure part: providers, triggers, a keychain, aliases of commands.

Shared packages do not import the services of one language. They use a protocol whose implementation wiring passes in,
or a list of lazily imported modules as the one below.
"""

COMMAND_ALIASES = ("perdure.services.playbook.noetl_aliases",)
"""Modules with further spellings of commands: each has `translate_arguments` and `HELP`, a paragraph about them."""
