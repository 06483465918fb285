"""`from fastq import ...` gives what the documentation promises, and nothing by accident."""

import ast
import re
import tomllib
from pathlib import Path

import fastq

ROOT = Path(__file__).parents[2]

DECLARE = {"FastQ", "DeadBounds", "Task", "Unique", "Backoff", "Retry", "Drop", "Middleware", "current_job"}
RETURNED = {"BoundTask", "BulkResult", "Conflict", "CurrentJob", "Duplicate", "Job", "LockInfo", "PreparedCall"}
RETURNED |= {"DeadJob", "OutgoingCall", "Queue", "QueueCounts", "ReplayRefusal", "ReplayResult", "WorkerInfo"}
ERRORS = {
    "FastQError",
    "AlreadyEnqueued",
    "DuplicateJobError",
    "JobIDConflictError",
    "ConfigError",
    "UniqueConfigError",
    "UnknownTaskError",
    "PayloadError",
    "BulkError",
    "BrokerError",
    "JobFailed",
    "ResultTimeout",
    "ResultUnavailable",
    "QueueFull",
}


def test_everything_that_the_documentation_imports_is_public():
    assert (DECLARE | ERRORS) - set(fastq.__all__) == set()


def test_nothing_else_is_public():
    assert set(fastq.__all__) - DECLARE - ERRORS - RETURNED == set()


def test_the_public_names_are_listed_once_and_in_order():
    assert list(fastq.__all__) == sorted(set(fastq.__all__))


def test_every_public_name_is_there_and_documented():
    assert [name for name in fastq.__all__ if not getattr(fastq, name).__doc__] == []


def test_every_public_error_is_a_fastq_error():
    assert [name for name in sorted(ERRORS) if not issubclass(getattr(fastq, name), fastq.FastQError)] == []


def test_every_class_of_errors_is_public():
    tree = ast.parse((ROOT / "fastq" / "errors.py").read_text("utf-8"))
    declared = {node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}

    assert declared - set(fastq.__all__) == set()


def test_the_package_and_the_changelog_have_the_version_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    [latest, *_] = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert fastq.__version__ == latest == version
