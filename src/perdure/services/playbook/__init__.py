"""What Playbook brings: its Python and secrets, its store of results, the keychain, and spellings of commands."""

from perdure.services.provider_lists import ProviderList

PROVIDERS = ProviderList(
    "playbook",
    prefixes=("playbook.",),
    modules={
        "playbook.python": "perdure.services.playbook.python",
        "playbook.secrets": "perdure.services.playbook.secrets",
        "playbook.result_store": "perdure.services.playbook.result_store",
    },
    code=frozenset({"playbook.python"}),
)
