"""Labels and annotations that connect runs, steps and requests (STY-262)."""

RUN = "bubustack.io/storyrun"
STORY = "bubustack.io/story-name"
STEP = "bubustack.io/step"
PARENT_STEP = "bubustack.io/parent-step"
PARENT_RUN = "bubustack.io/parent-storyrun"
QUEUE = "bubustack.io/queue"
QUEUE_PRIORITY = "bubustack.io/queue-priority"
CORRELATION = "bubustack.io/correlation-id"
HYBRID = "bubustack.io/hybrid"  # of the StepRun that a packet of a stream has
UPSTREAM_STEP = "bubustack.io/upstream-step"

TOKEN = "storyrun.bubustack.io/trigger-token"
INPUT_HASH = "storyrun.bubustack.io/trigger-input-hash"
REQUEST_NAME = "storyrun.bubustack.io/trigger-request-name"
REQUEST_UID = "storyrun.bubustack.io/trigger-request-uid"
BESIDE = "perdure.dev/inputs-beside"  # JSON: members of the inputs that are not hashed
IMPULSE = "perdure.dev/impulse"  # of runs of every language that an Impulse has started: namespace/name
SCHEDULE = "perdure.dev/schedule"
SCHEDULED_AT = "perdure.dev/scheduled-at"
TRIGGER = "perdure.dev/trigger"  # of runs of other languages: namespace/name of their request
THROTTLED = "perdure.dev/throttled"  # of requests that wait at the throttle of their Impulse
ALERT_FOR = "perdure.dev/alert-for"  # the run that has failed
REDRIVE = "storyrun.bubustack.io/redrive-token"
REDRIVE_FROM = "storyrun.bubustack.io/redrive-from-step"
REDRIVE_OBSERVED = "storyrun.bubustack.io/redrive-observed"
REDRIVE_FROM_OBSERVED = "storyrun.bubustack.io/redrive-from-step-observed"
CANCEL_CONSUMED = "storyrun.bubustack.io/cancel-consumed"
CANCEL_REQUESTED = "bubustack.io/cancel-requested"
JOB_UID = "runs.bubustack.io/job-uid"
RESTART_COUNT = "runs.bubustack.io/restart-count"
RESTARTED_AT = "runs.bubustack.io/restarted-at"
CACHE = "cache.bubustack.io/"
