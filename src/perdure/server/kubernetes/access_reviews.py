"""What a token may do, asked for by itself: `kubectl auth can-i` and `auth whoami`."""

from typing import Any

from perdure.server.calls import Answer, ApiCall, Caller, Result
from perdure.server.kubernetes.discovery import (
    REVIEW_GROUPS,
    REVIEWS,
    ApiResource,
    resources_of,
)
from perdure.server.kubernetes.object_bodies import read_json
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.api_errors import RouteNotFound
from perdure.views.errors import BadRequest

READING = ("get", "list", "watch")
EVERYTHING = "*"


def _is_allowed(caller: Caller, resource: ApiResource, verb: str, namespace: str) -> bool:
    kind = resource.kind
    if kind.has_namespace and namespace and not caller.sees(namespace):
        return False
    if kind.has_namespace and not namespace and caller.namespaces is not None and verb not in READING:
        return False
    if verb in READING:
        return verb in resource.verbs and caller.role.includes(AccessRole.VIEWER)
    if not kind.has_namespace and caller.namespaces is not None:
        return False
    if verb == EVERYTHING:
        return set(resource.verbs) >= {"create", "delete"} and caller.role.includes(resource.writer)
    return verb in resource.verbs and caller.role.includes(resource.writer)


async def review_access(call: ApiCall) -> Result:
    name = REVIEWS.get(call.path["review"], "")
    if not name or call.path["version"] != "v1":
        raise RouteNotFound("the server could not find the requested resource")
    group = REVIEW_GROUPS[name]
    body = await read_json(call)
    if not isinstance(body, dict):
        raise BadRequest("the body must be an object")
    spec = body.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    answers = {
        "SelfSubjectAccessReview": _access,
        "SelfSubjectRulesReview": _rules,
        "SelfSubjectReview": _self,
    }
    head = {"kind": name, "apiVersion": f"{group}/v1", "metadata": {"creationTimestamp": None}}
    return Answer({**head, "spec": spec, "status": answers[name](call, spec)}, 201)


def _access(call: ApiCall, spec: dict[str, Any]) -> dict[str, Any]:
    caller, asked = call.caller, spec.get("resourceAttributes")
    if not isinstance(asked, dict):
        path = (spec.get("nonResourceAttributes") or {}).get("path", "")
        return {"allowed": bool(path) and caller.role.includes(AccessRole.VIEWER)}
    words = {name: str(asked.get(name) or "") for name in ("namespace", "verb", "group", "resource")}
    served = [
        resource
        for resource in resources_of(call).values()
        if words["resource"] in (EVERYTHING, resource.kind.plural)
        and words["group"] in (EVERYTHING, resource.kind.group)
    ]
    if not served:
        return {"allowed": False, "reason": "there is no such resource"}
    allowed = all(_is_allowed(caller, resource, words["verb"], words["namespace"]) for resource in served)
    return {"allowed": allowed} if allowed else {"allowed": False, "reason": f"the role is {caller.role.value}"}


def _rules(call: ApiCall, spec: dict[str, Any]) -> dict[str, Any]:
    namespace = str(spec.get("namespace") or "")
    rules = []
    for resource in resources_of(call).values():
        verbs = [verb for verb in resource.verbs if _is_allowed(call.caller, resource, verb, namespace)]
        if verbs:
            names = [resource.kind.plural, *([f"{resource.kind.plural}/status"] if resource.has_status else [])]
            rules.append({"verbs": verbs, "apiGroups": [resource.kind.group], "resources": names})
    own = [
        {"verbs": ["create"], "apiGroups": [REVIEW_GROUPS[review]], "resources": [plural]}
        for plural, review in REVIEWS.items()
    ]
    pages = [{"verbs": ["get"], "nonResourceURLs": ["/api", "/apis/*", "/openapi/*", "/version"]}]
    return {"resourceRules": [*rules, *own], "nonResourceRules": pages, "incomplete": False}


def _self(call: ApiCall, spec: dict[str, Any]) -> dict[str, Any]:
    caller = call.caller
    groups = ["system:authenticated", f"perdure:{caller.role.value}"]
    return {"userInfo": {"username": caller.identity, "groups": groups, "extra": {"via": [caller.via]}}}
