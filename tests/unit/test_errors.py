"""The errors carry what a caller needs to go on."""

import pytest

from fastq import errors
from fastq.job import BulkResult, Job


def test_every_error_is_a_fastq_error_and_stands_in_the_tree_at_the_top():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.FastQError)
        assert name in (errors.__doc__ or "")


def test_errors_are_also_what_python_would_call_them():
    assert issubclass(errors.UniqueConfigError, ValueError)
    assert issubclass(errors.PayloadError, TypeError)
    assert issubclass(errors.ResultTimeout, TimeoutError)
    assert issubclass(errors.UnknownTaskError, LookupError)


def test_both_kinds_of_already_enqueued_tell_the_holder():
    for kind in (errors.DuplicateJobError, errors.JobIDConflictError):
        error = kind("taken", job_uid="u", queue="q", expires_in=1.5)
        assert isinstance(error, errors.AlreadyEnqueued)
        assert (error.job_uid, error.queue, error.expires_in) == ("u", "q", 1.5)


def test_an_error_that_is_not_of_an_enqueue_has_nothing_to_repeat():
    with pytest.raises(RuntimeError, match="nothing to repeat"):
        errors.BrokerError("lost").retry()


def test_handles_do_not_know_more_than_they_say():
    job = Job(None, b"", "mail", "event:77")  # type: ignore[arg-type]

    assert job.uid == ""
    assert repr(job) == "<Job ? in 'mail', job_id='event:77'>"
    assert job != "event:77"


def test_a_bulk_without_handles_says_so():
    result = BulkResult(
        None, enqueued=3, duplicate_count=1, conflict_count=0, duplicates=[], conflicts=[], handles=None  # type: ignore[arg-type]
    )

    assert len(result) == 0
    with pytest.raises(IndexError, match="handles=False"):
        result[0]
    assert repr(result) == "<BulkResult: 3 enqueued, 1 duplicates, 0 conflicts>"
