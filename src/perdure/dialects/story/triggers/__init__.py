"""How Stories are started: requests, delivery policies, schedules. Pure: time and chance are given."""
