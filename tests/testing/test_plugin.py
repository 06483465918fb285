"""The fixture `fastq_test`, as a project of its own uses it: its test-suite is run as a program."""

import textwrap
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support import process
from tests.support.process import Child

SHOP = """
    from fastq import FastQ, Unique

    app = FastQ("redis://127.0.0.1:1/0", include=["shop.mail"])

    def signup(address):
        from shop.mail import welcome
        welcome.enqueue(address)
        welcome.using(delay=3600).enqueue(address + " again")
    """
MAIL = """
    from fastq import Unique
    from shop import app

    sent = []

    @app.task(unique=Unique(ttl=7200, key="address"), retries=1)
    async def welcome(address: str) -> int:
        sent.append(address)
        return len(sent)
    """
TESTS = """
    import asyncio
    import pytest
    from fastq import DuplicateJobError
    from shop import app, signup

    def test_welcome(fastq_test):
        signup("ada@example.com")
        with pytest.raises(DuplicateJobError):
            signup("ada@example.com")
        assert [job.args for job in fastq_test.jobs("waiting")] == [("ada@example.com",)]
        fastq_test.run()
        assert [outcome.state for outcome in fastq_test.outcomes] == ["succeeded"]
        fastq_test.advance(3600)
        fastq_test.run()
        assert [outcome.args[0] for outcome in fastq_test.outcomes] == ["ada@example.com", "ada@example.com again"]

    @pytest.mark.parametrize("n", range(3))
    def test_another_finds_nothing_of_it(fastq_test, n):
        assert fastq_test.jobs("waiting") == fastq_test.jobs("scheduled") == []
        signup("ada@example.com")

    def test_in_async_code(fastq_test):
        async def test():
            from shop.mail import welcome
            await welcome.aenqueue("bob@example.com")
            await fastq_test.arun()
        asyncio.run(test())
        assert len(fastq_test.outcomes) == 1
    """


@pytest.fixture
def run_suite(tmp_path: Path) -> Callable[..., Child]:
    """Writes the project, with these other files, and runs pytest in it."""

    def run(*arguments: str, announced: bool = False, **files: str) -> Child:
        (tmp_path / "shop").mkdir()
        written = {"shop/__init__.py": SHOP, "shop/mail.py": MAIL, "test_shop.py": TESTS}
        written |= {name.replace("__", "."): text for name, text in files.items()}
        for name, text in written.items():
            (tmp_path / name).write_text(textwrap.dedent(text))
        plugin = () if announced else ("-p", "fastq.pytest_plugin")
        child = process.python(
            *("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *plugin, *arguments),
            cwd=tmp_path,
            env={"PYTHONDONTWRITEBYTECODE": "1", **({} if announced else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})},
        )
        child.wait(60)
        return child

    return run


def test_the_option_names_the_app_and_every_test_has_its_own_place(run_suite):
    # A checkout that was installed before there was the plugin does not announce it.
    announced = any(point.value == "fastq.pytest_plugin" for point in entry_points(group="pytest11"))

    child = run_suite(pytest__ini="[pytest]\npythonpath = .\nfastq_app = shop:app\n", announced=announced)

    assert child.returncode == 0, child.stdout
    assert "5 passed" in child.stdout


def test_a_fixture_of_the_projects_own_gives_the_app(run_suite):
    conftest = """
        import pytest
        from shop import app

        @pytest.fixture
        def fastq_app():
            return app
        """
    child = run_suite("-o", "pythonpath=.", conftest__py=conftest)

    assert child.returncode == 0, child.stdout
    assert "5 passed" in child.stdout


def test_without_an_app_the_error_says_what_to_do(run_suite):
    child = run_suite("-o", "pythonpath=.", "-k", "test_welcome")

    assert child.returncode == 1
    assert "set fastq_app = MODULE:APP" in child.stdout


def test_a_wrong_name_is_told_with_the_right_one(run_suite):
    child = run_suite("-o", "pythonpath=.", "-o", "fastq_app=shop:application", "-k", "test_welcome")

    assert child.returncode == 1
    assert "there is shop:app" in child.stdout


def test_a_suite_without_the_fixture_loads_nothing_of_fastq_but_its_name(run_suite):
    alone = """
        import sys

        def test_what_is_loaded():
            assert not {"redis", "msgspec", "uvloop", "fastq.app", "fastq.testing"} & set(sys.modules)
        """
    child = run_suite("test_alone.py", test_alone__py=alone)

    assert child.returncode == 0, child.stdout
