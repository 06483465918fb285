"""The command line: one module per group of commands, and nothing but click imported before a command runs."""
