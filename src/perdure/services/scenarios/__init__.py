"""Tests and simulations of users' documents: scenarios on the real engine, schedules of faults on the kernel."""
