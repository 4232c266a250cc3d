#!/bin/sh
# A worker for a Perdure server in shell, with curl and jq: one task at a time.
#
#   URL=http://127.0.0.1:8420 TOKEN=... POOL=shop sh worker.sh
#
# It offers one provider, `upper`: the argument `text` in capital letters. SIGTERM ends it after the task in hand.
set -eu
worker="$(uname -n)-$$"
stopping=
trap 'stopping=1' TERM INT

call() { # PATH BODY [curl options]; tried again while the server is away
    path=$1 body=$2
    shift 2
    curl -sS --retry 60 --retry-delay 1 --retry-connrefused --retry-max-time 120 --max-time 90 --fail-with-body \
        -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' --data "$body" "$@" \
        "$URL/api/v1/worker/$path"
}

offer=$(jq -nc --arg worker "$worker" --arg pool "$POOL" \
    '{$worker, pools: [$pool], providers: ["upper"], max: 1, wait: 5}')
while [ -z "$stopping" ]; do
    tasks=$(call lease "$offer" -H "Idempotency-Key: $worker-$(date +%s%N)") || continue
    lease=$(printf '%s' "$tasks" | jq -r '.tasks[0].lease // empty')
    [ -n "$lease" ] || continue
    text=$(printf '%s' "$tasks" | jq -r '.tasks[0].arguments.text // empty')
    if [ -n "$text" ]; then
        answer=$(printf '%s' "$text" | tr '[:lower:]' '[:upper:]' | jq -Rsc '{output: .}')
        call "tasks/$lease/complete" "$answer" >/dev/null || echo "the answer changed nothing" >&2
    else
        call "tasks/$lease/fail" '{"code": "Upper.NoText", "message": "there is no text", "retryable": false}' >/dev/null || :
    fi
done
