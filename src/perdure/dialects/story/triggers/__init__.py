"""How Stories are started: requests, delivery policies, schedules. Pure: time and random numbers are passed in."""
