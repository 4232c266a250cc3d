"""What starts Stories: durable requests, deliveries of Impulses, schedules. Clients of the engine, never part of it."""
