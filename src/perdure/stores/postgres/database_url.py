"""Where a database is: `postgresql://user:password@host:port/name?parameters`, as libpq reads it."""

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.stores.errors import BadStoreUrl
from perdure.stores.store_urls import without_password

SCHEMES = ("postgresql", "postgres")
HINT = "Use postgresql://user@host:5432/database; the password may stand in PGPASSWORD or in ~/.pgpass."

DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",  # a peer that vanished without a word is noticed in half a minute
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


def parameters_of(url: str) -> str:
    """The address as libpq takes it, with our defaults where it says nothing."""
    if url.partition("://")[0] not in SCHEMES or "://" not in url:
        raise BadStoreUrl(f"{without_password(url)!r} is not the address of a PostgreSQL store", hint=HINT)
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        said = without_password(str(error).strip())
        raise BadStoreUrl(f"{without_password(url)!r} is not understood: {said}", hint=HINT) from None
    port = str(given.get("port") or "")
    if not all(one.isdecimal() for one in port.split(",") if one):
        raise BadStoreUrl(f"{without_password(url)!r} is not understood: {port!r} is no port", hint=HINT)
    return make_conninfo("", **{**DEFAULTS, **given})
