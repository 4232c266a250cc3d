"""Which addresses a document may reach (SRV-024).

They are checked after the name is resolved, and the connection goes to a checked address. One forbidden address refuses
the name. What listens at a refused address is not revealed.

Names are looked up in separate threads. Those of the event loop are shared and few: a name server that does not answer
would block them. A family of runs has a limited number of lookups at a time, so a lookup is not abandoned with its
task.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from perdure.providers.failure import ProviderFailure
from perdure.providers.off_loop import run_in_thread
from perdure.providers.policy import Policy
from perdure.providers.text import family_at_work

Address = IPv4Address | IPv6Address

_NAT64 = ip_network("64:ff9b::/96")
_COMPATIBLE = ip_network("::/96")
_LOOPBACK = {4: ip_address("127.0.0.1"), 6: ip_address("::1")}
_FORBIDDEN = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # the host of a virtual machine in Azure, which hands out its settings
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "::1/128",
        "64:ff9b:1::/48",
        "100::/64",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
        "fd00:ec2::254/128",
    )
)


class AddressRefused(ProviderFailure):
    def __init__(self, host: str, prefix: str = "Provider.Call.Http") -> None:
        message = f"the operator's policy does not allow connections to {host}"
        super().__init__(
            f"{prefix}.AddressRefused",
            message,
            retryable=False,
            details={"host": host, "hint": "an operator can allow it: policy.addresses in the settings file"},
        )


def is_allowed(policy: Policy, host: str, address: str) -> bool:
    """Whether a connection to this address, found under this name, may be made."""
    parsed = [ip_address(address.partition("%")[0])]
    parsed += _inner(parsed[0])
    if any(_is_among(parsed_address, host, policy.denied_addresses) for parsed_address in parsed):
        return False
    if policy.network == "open" or any(_is_among(candidate, host, policy.addresses) for candidate in parsed):
        return True
    return not any(_is_forbidden(address) or is_own(address) for address in parsed)


def is_own(address: Address) -> bool:
    """Whether it is an address of this machine: then a connection to it begins there as well. Nothing is sent."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(ip_address(probe.getsockname()[0].partition("%")[0]) == address)
    except OSError:
        return False


def check_host_name(policy: Policy, host: str, prefix: str = "Provider.Call.Http") -> None:
    """For a proxy that resolves names: the host as written is checked, addresses in any notation and listed names.

    Raises `AddressRefused`. The addresses behind a name are for the proxy to check.
    """
    name = host.lower().rstrip(".")
    try:
        address = str(ip_address(name))
    except ValueError:
        try:
            address = socket.inet_ntoa(socket.inet_aton(name))  # 127.1, 0x7f000001, 2130706433
        except (OSError, UnicodeError):
            address = "127.0.0.1" if name.rpartition(".")[2] == "localhost" else ""
    if name in (denied.lower().rstrip(".") for denied in policy.denied_addresses) or (
        address and not is_allowed(policy, host, address)
    ):
        raise AddressRefused(host, prefix)


def _inner(address: Address) -> list[Address]:
    """Addresses that are reached by another one: IPv4 inside IPv6 (mapped, compatible, 6to4, NAT64, Teredo).

    A connection to the address of nobody, 0.0.0.0 or ::, goes to the loopback.
    """
    if address.is_unspecified:
        return [_LOOPBACK[address.version]]
    if isinstance(address, IPv4Address):
        return []
    inner: list[Address] = [
        candidate for candidate in (address.ipv4_mapped, address.sixtofour) if candidate is not None
    ]
    if address.teredo is not None:
        inner += address.teredo
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [*inner, *(_LOOPBACK[4] for candidate in inner if candidate.is_unspecified)]


def _is_forbidden(address: Address) -> bool:
    if any(address.version == network.version and address in network for network in _FORBIDDEN):
        return True
    return address.is_multicast or address.is_unspecified or address.is_reserved or address.is_link_local


def _is_among(address: Address, host: str, listed: Sequence[str]) -> bool:
    for text in listed:
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            if text.lower().rstrip(".") == host.lower().rstrip("."):
                return True
        else:
            if address.version == network.version and address in network:
                return True
    return False


LOOKUPS = 256  # at a time
LOOKUPS_OF_A_FAMILY = 8


class _LookupSlots:
    """The lookup slots of one event loop."""

    def __init__(self) -> None:
        self.all = asyncio.Semaphore(LOOKUPS)
        self.of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # while a lookup runs


_lookups: WeakKeyDictionary[asyncio.AbstractEventLoop, _LookupSlots] = WeakKeyDictionary()


async def _look_up(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    lookups = _lookups.setdefault(asyncio.get_running_loop(), _LookupSlots())
    family_slots = lookups.of.setdefault(family_at_work.get(), asyncio.Semaphore(LOOKUPS_OF_A_FAMILY))
    with ExitStack() as slots:
        for places in (family_slots, lookups.all):
            await places.acquire()
            slots.callback(places.release)
        lookup = run_in_thread(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM), "perdure-lookup")
        release = slots.pop_all().close  # not before the thread has ended, whoever is still waiting for it
    lookup.add_done_callback(lambda _: release())
    return await asyncio.shield(lookup)


async def resolve(policy: Policy, host: str, port: int, prefix: str = "Provider.Call.Http") -> list[str]:
    """The addresses of a name, all of them allowed. Raises `AddressRefused`, or OSError for an unknown name."""
    return _checked(policy, host, await _look_up(host, port), prefix)


def resolve_blocking(policy: Policy, host: str, port: int, prefix: str = "Provider.Call.Http") -> list[str]:
    return _checked(policy, host, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), prefix)


def _checked(policy: Policy, host: str, rows: Sequence[tuple[Any, ...]], prefix: str) -> list[str]:
    addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
    if not addresses or not all(is_allowed(policy, host, address) for address in addresses):
        raise AddressRefused(host, prefix)
    return addresses
