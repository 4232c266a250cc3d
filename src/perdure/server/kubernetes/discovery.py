"""What the API serves: groups, versions and resources, in both forms that clients ask for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perdure.kernel.documents.resource_kinds import PrinterColumn, ResourceKind
from perdure.server.calls import Answer, ApiCall, Result
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.api_errors import RouteNotFound

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
AGGREGATED = "APIGroupDiscoveryList"

_AGE = PrinterColumn("Age", "metadata.creationTimestamp", "date")


def _core(name: str, plural: str, short: str, *columns: PrinterColumn, **more: Any) -> ResourceKind:
    return ResourceKind(name, plural, "", (short,) if short else (), version="v1", columns=(*columns, _AGE), **more)


NAMESPACE = _core("Namespace", "namespaces", "ns", PrinterColumn("Status", "status.phase"))
CONFIG_MAP = _core("ConfigMap", "configmaps", "cm", PrinterColumn("Data", "data", "count"), has_namespace=True)
SECRET = _core(
    "Secret",
    "secrets",
    "",
    PrinterColumn("Type", "type"),
    PrinterColumn("Data", "data", "count"),
    has_namespace=True,
)
EVENT = ResourceKind(
    "Event",
    "events",
    "",
    ("ev",),
    has_namespace=True,
    of_runs=True,
    version="v1",
    columns=(
        PrinterColumn("Last Seen", "lastTimestamp", "date"),
        PrinterColumn("Type", "type"),
        PrinterColumn("Reason", "reason"),
        PrinterColumn("Object", "involvedObject", "object"),
        PrinterColumn("Message", "message"),
    ),
)
CORE_KINDS = (NAMESPACE, CONFIG_MAP, SECRET, EVENT)
REVIEWS = {
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    "selfsubjectreviews": "SelfSubjectReview",
}
AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
REVIEW_GROUPS = {
    "SelfSubjectAccessReview": AUTHORIZATION,
    "SelfSubjectRulesReview": AUTHORIZATION,
    "SelfSubjectReview": AUTHENTICATION,
}


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind as the API serves it."""

    kind: ResourceKind

    @property
    def title(self) -> str:
        """`stories.bubustack.io`"""
        return f"{self.kind.plural}.{self.kind.group}" if self.kind.group else self.kind.plural

    @property
    def is_core(self) -> bool:
        return self.kind in CORE_KINDS

    @property
    def is_run(self) -> bool:
        return self.kind.of_runs and self.kind.is_request

    @property
    def verbs(self) -> tuple[str, ...]:
        if self.kind.of_runs and not self.kind.is_request:
            return READ
        if self.kind is NAMESPACE:
            return (*(verb for verb in WRITE if verb != "deletecollection"), *READ)
        return (*WRITE, *READ)

    @property
    def writer(self) -> AccessRole:
        """Who may create, change and remove it: runs are steered, entries are written."""
        return AccessRole.OPERATOR if self.kind.is_request else AccessRole.AUTHOR

    @property
    def has_status(self) -> bool:
        return not self.is_core


@lru_cache(maxsize=8)
def api_resources(kinds: tuple[ResourceKind, ...]) -> Mapping[tuple[str, str, str], ApiResource]:
    """By group, version and plural, in the order in which they are listed."""
    served = [*CORE_KINDS, *sorted((kind for kind in kinds if kind.version), key=lambda kind: kind.group)]
    return {(kind.group, kind.version, kind.plural): ApiResource(kind) for kind in served}


def resources_of(call: ApiCall) -> Mapping[tuple[str, str, str], ApiResource]:
    return api_resources(tuple(call.engine.catalog.kinds))


def find_resource(call: ApiCall) -> ApiResource:
    """The one that the path names."""
    path = call.path
    group, version = path.get("group", ""), path.get("version", "v1")
    resource = resources_of(call).get((group, version, path["plural"]))
    if resource is None:
        raise RouteNotFound(
            "the server could not find the requested resource", hint="List the resources with `kubectl api-resources`."
        )
    return resource


def _versions(call: ApiCall) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for group, version, _ in resources_of(call):
        if version not in groups.setdefault(group, []):
            groups[group].append(version)
    return groups | {AUTHORIZATION: ["v1"], AUTHENTICATION: ["v1"]}


def _is_aggregated(call: ApiCall) -> str:
    """The version of the aggregated form that is asked for; empty: the plain form."""
    for part in call.headers.get("accept", "").split(","):
        words = {word.strip() for word in part.split(";")}
        if f"as={AGGREGATED}" in words:
            return next((word[2:] for word in words if word in ("v=v2", "v=v2beta1")), "")
    return ""


async def list_core_versions(call: ApiCall) -> Result:
    if version := _is_aggregated(call):
        return _aggregated(call, [""], version)
    return Answer({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})


async def list_groups(call: ApiCall) -> Result:
    names = [name for name in _versions(call) if name]
    if version := _is_aggregated(call):
        return _aggregated(call, names, version)
    return Answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(call, name) for name in names]})


async def get_group(call: ApiCall) -> Result:
    if call.path["group"] not in _versions(call) or not call.path["group"]:
        raise RouteNotFound("the server could not find the requested resource")
    return Answer({"apiVersion": "v1", **_group(call, call.path["group"])})


def _group(call: ApiCall, name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in _versions(call)[name]]
    return {"kind": "APIGroup", "name": name, "versions": versions, "preferredVersion": versions[0]}


async def list_resource_kinds(call: ApiCall) -> Result:
    """The resources of one version of a group."""
    group, version = call.path.get("group", ""), call.path.get("version", "v1")
    if version not in _versions(call).get(group, ()):
        raise RouteNotFound("the server could not find the requested resource")
    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}" if group else version}
    served = [resource for resource in resources_of(call).values() if resource.kind.group == group]
    listed = [item for resource in served for item in _listed(resource)]
    listed += [
        {"name": plural, "singularName": "", "namespaced": False, "kind": kind, "verbs": ["create"]}
        for plural, kind in REVIEWS.items()
        if REVIEW_GROUPS[kind] == group
    ]
    return Answer({**body, "resources": listed})


def _listed(resource: ApiResource) -> Iterable[dict[str, Any]]:
    kind = resource.kind
    head = {"namespaced": kind.has_namespace, "kind": kind.name}
    item: dict[str, Any] = {"name": kind.plural, "singularName": kind.name.lower(), **head}
    yield (
        {**item, "verbs": list(resource.verbs)}
        | ({"shortNames": list(kind.short)} if kind.short else {})
        | ({"categories": list(kind.categories)} if kind.categories else {})
    )
    if resource.has_status:
        verbs = ["get"] if "patch" not in resource.verbs else ["get", "patch", "update"]
        yield {"name": f"{kind.plural}/status", "singularName": "", **head, "verbs": verbs}


def _aggregated(call: ApiCall, groups: Sequence[str], version: str) -> Result:
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [
                {"version": served, "resources": _aggregated_resources(call, name), "freshness": "Current"}
                for served in _versions(call)[name]
            ],
        }
        for name in groups
    ]
    api_version = f"apidiscovery.k8s.io/{version}"
    body = {"kind": AGGREGATED, "apiVersion": api_version, "metadata": {}, "items": items}
    media_type = f"application/json;g=apidiscovery.k8s.io;v={version};as={AGGREGATED}"
    return Answer(body, headers={"Content-Type": media_type})


def _aggregated_resources(call: ApiCall, group: str) -> list[dict[str, Any]]:
    served = [resource for resource in resources_of(call).values() if resource.kind.group == group]
    reviews = [
        {
            "resource": plural,
            "responseKind": {"group": group, "version": "v1", "kind": kind},
            "scope": "Cluster",
            "singularResource": "",
            "verbs": ["create"],
        }
        for plural, kind in REVIEWS.items()
        if REVIEW_GROUPS[kind] == group
    ]
    return [*map(_aggregated_resource, served), *reviews]


def _aggregated_resource(resource: ApiResource) -> dict[str, Any]:
    kind = resource.kind
    response = {"group": kind.group, "version": kind.version, "kind": kind.name}
    item: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": response,
        "scope": "Namespaced" if kind.has_namespace else "Cluster",
        "singularResource": kind.name.lower(),
        "verbs": list(resource.verbs),
    }
    if kind.short:
        item["shortNames"] = list(kind.short)
    if kind.categories:
        item["categories"] = list(kind.categories)
    if resource.has_status:
        verbs = ["get"] if "patch" not in resource.verbs else ["get", "patch", "update"]
        item["subresources"] = [{"subresource": "status", "responseKind": response, "verbs": verbs}]
    return item
