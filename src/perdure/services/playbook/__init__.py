"""What Playbook brings: its Python and secrets, the keychain, and spellings of commands."""

from perdure.services.provider_lists import ProviderList

PROVIDERS = ProviderList(
    "playbook",
    prefixes=("playbook.",),
    modules={
        "playbook.python": "perdure.services.playbook.python",
        "playbook.secrets": "perdure.services.playbook.secrets",
    },
    code=frozenset({"playbook.python"}),
)
