"""Registration: what a task is called, what may be one, and what is refused. Nothing here speaks to Redis."""

import asyncio
import datetime as dt
import logging
import os
import subprocess
import sys
import textwrap

import pytest

from fastq import Backoff, ConfigError, FastQ, PayloadError, Retry, Unique, UniqueConfigError


@pytest.fixture
def app():
    return FastQ("redis://127.0.0.1:1")


def module_level(a: int, b: int = 2) -> int:
    """Adds."""
    return a + b


def test_a_task_stays_an_ordinary_function(app):
    task = app.task(module_level)

    assert task(1) == 3
    assert (task.__name__, task.__doc__, task.__wrapped__) == ("module_level", "Adds.", module_level)


def test_an_async_task_called_gives_its_coroutine(app):
    @app.task
    async def later(a):
        return a

    assert asyncio.run(later(5)) == 5


def test_the_name_is_that_of_module_and_function_without_locals(app):
    @app.task
    def inner(): ...

    assert inner.name == f"{__name__}.test_the_name_is_that_of_module_and_function_without_locals.inner"
    assert app.tasks[inner.name] is inner


def test_a_name_can_be_given(app):
    assert app.task(name="shop:mail/send")(module_level).name == "shop:mail/send"


def run_python(*arguments, cwd=None):
    """What a program prints that finds fastq where this one does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout.strip()


MAIN = """
    from fastq import FastQ
    app = FastQ()
    @app.task
    def send(): ...
    print(send.name)
"""


def test_a_module_that_runs_as_main_goes_by_its_real_name(tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("mail", "__main__"):
        (package / f"{name}.py").write_text(textwrap.dedent(MAIN))

    assert run_python("shop/mail.py", cwd=tmp_path) == "mail.send"
    assert run_python("-m", "shop.mail", cwd=tmp_path) == "shop.mail.send"
    assert run_python("-m", "shop", cwd=tmp_path) == "shop.send"


def test_options_have_the_documented_defaults(app):
    task = app.task(module_level)

    assert (task.queue, task.timeout, task.executor) == ("default", 3600, "thread")
    assert (task.unique, task.result_ttl, task.track) == (None, None, False)
    assert task.retry == Backoff(retries=3)
    assert not task.is_async


def test_options_are_what_was_given(app):
    task = app.task(
        queue="mail", retries=Backoff(5), timeout=dt.timedelta(minutes=1), unique=Unique(3600), result_ttl=300,
        executor="process",
    )(module_level)  # fmt: skip

    assert (task.queue, task.timeout, task.executor, task.result_ttl, task.track) == ("mail", 60, "process", 300, True)
    assert task.unique == Unique(3600)
    assert task.retry == Backoff(5)
    assert app.task(name="endless", timeout=None)(module_level).timeout is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retrys": 3}, "did you mean retries"),
        ({"result_tl": 3}, "did you mean result_ttl"),
        ({"priority": 3}, "there are executor, expires"),
        ({"name": "a b"}, "is not a name"),
        ({"queue": "a b"}, "is not a name"),
        ({"retries": -1}, "retries="),
        ({"retries": "3"}, "retries="),
        ({"timeout": 0}, "timeout="),
        ({"timeout": "30"}, "timeout="),
        ({"expires": -1}, "expires="),
        ({"result_ttl": -1}, "result_ttl="),
        ({"retention": None}, "retention="),
        ({"executor": "gpu"}, "executor="),
        ({"unique": True}, "unique=True"),
        ({"unique": Unique(60, key="c")}, "no such parameter, it has a, b"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_registration(app, options, says):
    with pytest.raises(ConfigError, match=says):
        app.task(**options)(module_level)
    assert not app.tasks


def test_an_executor_for_an_async_task_is_refused(app):
    async def later(): ...

    with pytest.raises(ConfigError, match="is async"):
        app.task(executor="thread")(later)


def test_the_same_name_twice_is_refused(app):
    app.task(module_level)

    with pytest.raises(ConfigError, match=r"registered already, for .*module_level"):
        app.task(module_level)


def test_a_static_method_can_be_a_task_and_a_method_cannot(app):
    class Shop:
        @staticmethod
        @app.task
        def inside(a: int) -> int:
            return a

        @app.task
        @staticmethod
        def outside(a: int) -> int:
            return a

    assert Shop.inside(1) == Shop().inside(1) == Shop.outside(1) == Shop().outside(1) == 1
    assert Shop.inside.name.endswith("Shop.inside")
    for refused in (
        lambda: type("Shop", (), {"method": app.task(methods()[0])}),
        lambda: app.task(methods()[1]),
        lambda: app.task(methods()[2]),
    ):
        with pytest.raises(ConfigError, match="is a method"):
            refused()


def methods():
    class Shop:
        def method(self, a: int): ...

        @classmethod
        def of_class(cls, a: int): ...

    return Shop.method, Shop.__dict__["of_class"], Shop().method


@pytest.mark.parametrize("what", [int, "name", 3, print, type("Callable", (), {"__call__": lambda self: None})()])
def test_what_is_no_function_is_refused(app, what):
    with pytest.raises(ConfigError, match=r"is no function|a name is given as"):
        app.task(what)


def test_a_generator_function_is_refused(app):
    def generator():
        yield 1

    async def async_generator():
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(ConfigError, match="generator"):
            app.task(function)


def test_a_lambda_needs_a_name(app):
    with pytest.raises(ConfigError, match="is not a name"):
        app.task(lambda: None)

    assert app.task(name="nothing")(lambda: None).name == "nothing"


def test_a_task_is_no_task_again(app):
    task = app.task(module_level)

    with pytest.raises(ConfigError, match="is a task already"):
        app.task(name="other")(task)


def test_a_lock_shorter_than_all_attempts_is_warned_of(app, caplog):
    options = {"timeout": 30, "retries": Backoff(3, delay=2, jitter=0)}  # 4 x 30 + 2 + 4 + 8 = 134 s
    with caplog.at_level(logging.WARNING, "fastq"):
        app.task(name="a", unique=Unique(134), **options)(module_level)
        app.task(name="b", unique=Unique(60, renew=True), **options)(module_level)
        app.task(name="c", unique=Unique(60, until="ttl"), **options)(module_level)
        assert not caplog.records

        app.task(name="d", unique=Unique(133), **options)(module_level)
        app.task(name="e", unique=Unique(1e6), timeout=None)(module_level)
    assert [record.args[0] for record in caplog.records] == ["d", "e"]
    assert "134 s" in caplog.records[0].getMessage()
    assert "for ever" in caplog.records[1].getMessage()


def test_one_lock_for_the_whole_task_is_warned_of_once_at_registration(app, caplog):
    with caplog.at_level(logging.WARNING, "fastq"):
        app.task(unique=Unique(1e6, key=Unique.TASK))(module_level)

    assert len(caplog.records) == 1
    assert "at most one job of the whole task" in caplog.text


# --- using


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dely": 3}, "did you mean delay"),
        ({"result_ttl": 3}, "is no option of using"),
        ({"delay": -1}, "delay="),
        ({"delay": "soon"}, "delay="),
        ({"delay": 1, "at": dt.datetime.now(dt.UTC)}, "exclude each other"),
        ({"at": dt.datetime(2040, 1, 1)}, "has no time zone"),
        ({"at": 1_900_000_000}, "aware datetime"),
        ({"at": dt.datetime(9999, 1, 1, tzinfo=dt.UTC)}, "within reach"),
        ({"queue": "a b"}, "is not a name"),
        ({"job_id": ""}, "not empty"),
        ({"job_id": 77}, "not empty"),
        ({"job_id": "x" * 513}, "513 bytes"),
        ({"job_id": "\ud800"}, "lone surrogate"),
        ({"retention": -1}, "retention="),
        ({"unique": 60}, "unique=60"),
        ({"unique": Unique(60, key="c")}, "no such parameter"),
        ({"retries": lambda attempt, error: 1}, "travels with the job"),
        ({"timeout": 0}, "timeout="),
        ({"expires": 0}, "expires="),
    ],
)
def test_using_refuses_what_cannot_work(app, options, says):
    with pytest.raises(ConfigError, match=says):
        app.task(module_level).using(**options)


@pytest.mark.parametrize("conflict", ["skip", "replace", "rerun"])
def test_a_job_id_and_another_answer_to_a_conflict_than_raise_exclude_each_other(app, conflict):
    unique = Unique(1e6, on_conflict=conflict)

    for refused in (
        lambda: app.task(name="a")(module_level).using(unique=unique, job_id="x"),
        lambda: app.task(name="b", unique=unique)(module_level).using(job_id="x"),
        lambda: app.task(name="c")(module_level).using(job_id="x").using(unique=unique),
        lambda: app.using(unique=unique, job_id="x"),
    ):
        with pytest.raises(UniqueConfigError, match="job_id together with"):
            refused()


def test_using_makes_a_copy_and_leaves_the_task_alone(app):
    task = app.task(unique=Unique(1e6))(module_level)

    other = task.using(queue="slow", unique=None).using(delay=5)

    assert (task.queue, other.queue, other.name) == ("default", "slow", task.name)


def test_another_queue_for_a_task_with_a_named_key_is_warned_of_once(app, caplog):
    named = app.task(name="warned", unique=Unique(1e6, key="a"))(module_level)
    content = app.task(name="content", unique=Unique(1e6))(module_level)

    with caplog.at_level(logging.WARNING, "fastq"):
        content.using(queue="slow")
        named.using(queue="default")
        assert not caplog.records
        named.using(queue="slow")
        named.using(queue="slower")

    assert [record.args for record in caplog.records] == [("warned", "slow")]


# --- before anything is sent


def test_a_call_that_cannot_be_encoded_names_the_parameter_and_never_reaches_redis():
    app = FastQ("redis://127.0.0.1:1")

    @app.task
    def send(order): ...

    app.broker.clock.offset_ms = 0  # as if a server had told its time: nothing listens on this port
    with pytest.raises(PayloadError, match=r"order\.items\[1\]") as caught:
        send.enqueue({"items": [1, object()]})
    assert caught.value.path == "order.items[1]"
    with pytest.raises(PayloadError, match="missing a required argument: 'order'"):
        send.enqueue()


def test_validate_checks_a_call_against_the_annotations():
    app = FastQ("redis://127.0.0.1:1", validate=True)

    @app.task
    def send(order: int): ...

    app.broker.clock.offset_ms = 0
    with pytest.raises(PayloadError, match="`order`: Expected `int`, got `str`"):
        send.enqueue("o-1")


@pytest.mark.parametrize(
    "given", [{}, {"uid": "x"}, {"uid": 5}, {"uid": "0193" * 8, "job_id": "a"}, {"job_id": "a", "queue": "a b"}]
)
def test_a_handle_is_made_of_a_uid_or_a_job_id(app, given):
    with pytest.raises(ConfigError):
        app.job(**given)


def test_a_handle_can_be_made_again():
    app = FastQ()
    uid = "01902f4e-7a6b-7000-8000-000000000001"

    job = app.job(uid, queue="mail")

    assert (job.uid, job.job_id, job.queue, job.duplicate, job.conflict) == (uid, None, "mail", False, None)
    assert job == app.job(uid, queue="mail") != app.job(uid)
    assert app.job(job_id="event:77", queue="mail").job_id == "event:77"


def test_a_string_where_modules_are_listed_is_refused():
    with pytest.raises(ConfigError, match=r'\["shop\.mail"\]'):
        FastQ(include="shop.mail")


def test_the_modules_of_include_are_imported_when_the_worker_asks(tmp_path, monkeypatch):
    (tmp_path / "included_tasks.py").write_text("loaded = True")
    monkeypatch.syspath_prepend(tmp_path)

    FastQ(include=["included_tasks"]).import_tasks()

    assert sys.modules.pop("included_tasks").loaded


def test_importing_fastq_loads_no_part_of_it():
    code = "import sys, fastq; print([m for m in sys.modules if m.startswith(('fastq.', 'redis', 'msgspec'))])"

    assert run_python("-c", code) == "[]"


def test_the_signals_are_exceptions_of_their_own():
    assert issubclass(Retry, Exception)
    assert not issubclass(Retry, ConfigError.__mro__[1])
