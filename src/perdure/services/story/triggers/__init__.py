"""How Stories are started: durable requests, deliveries of Impulses, schedules. Clients of the engine."""
