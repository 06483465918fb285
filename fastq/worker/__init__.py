"""The process that runs jobs: one duty a file, wired by `worker.py`."""
