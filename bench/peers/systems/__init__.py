"""One program a system: its tasks, how it enqueues them, and its worker. Each is run by a Python that has this system only."""
