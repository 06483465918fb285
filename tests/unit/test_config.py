"""Names, durations and URLs are checked where they are written."""

from datetime import timedelta

import pytest

from fastq.config import Config, check_name, check_seconds, check_task_name, read_url
from fastq.errors import ConfigError, FastQError


@pytest.mark.parametrize("name", ["a", "mail", "A-1_b.c", "x" * 128])
def test_a_name_of_letters_digits_dots_dashes_and_underscores_is_accepted(name):
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", ["", "x" * 129, "a b", "a:b", "{a}", "a\n", "é", "a/b", None, 3, b"mail"])
def test_any_other_queue_name_is_refused_with_what_is_allowed(name):
    with pytest.raises(ConfigError, match="use 1 to 128 of the characters"):
        check_name("queue", name)


def test_a_task_name_may_have_colons_and_slashes_too():
    assert check_task_name("shop:mail/send") == "shop:mail/send"


@pytest.mark.parametrize("name", ["", "<lambda>", "a b", "a%b", "ä"])
def test_any_other_task_name_is_refused(name):
    with pytest.raises(ConfigError, match="use 1 to 128 of the characters"):
        check_task_name(name)


@pytest.mark.parametrize(("given", "seconds"), [(0, 0.0), (1.5, 1.5), (timedelta(minutes=2), 120.0)])
def test_a_duration_is_seconds_or_a_timedelta(given, seconds):
    assert check_seconds("delay", given) == seconds


@pytest.mark.parametrize(
    "given", [-1, float("nan"), float("inf"), 1e300, "5", None, True, timedelta(seconds=-1), timedelta(days=40_000)]
)
def test_what_is_no_duration_is_refused_by_the_name_of_the_option(given):
    with pytest.raises(ConfigError, match="delay="):
        check_seconds("delay", given)


@pytest.mark.parametrize(
    ("url", "kind", "shown"),
    [
        ("redis://localhost:6379/0", "tcp", "redis://localhost:6379/0"),
        ("redis://", "tcp", "redis://localhost:6379/0"),
        ("redis://user:pass@db.example:6380/2", "tcp", "redis://db.example:6380/2"),
        ("redis://[::1]:7000", "tcp", "redis://[::1]:7000/0"),
        ("rediss://:pass@db.example?ssl_cert_reqs=none", "tls", "rediss://db.example:6379/0"),
        ("unix:///run/redis.sock?db=3", "unix", "unix:///run/redis.sock"),
        ("redis+sentinel://a,b:26380/main/1", "sentinel", "redis+sentinel://a:26379,b:26380/main/1"),
        ("embedded://", "embedded", "embedded://"),
        ("embedded:///var/lib/shop", "embedded", "embedded:///var/lib/shop"),
    ],
)
def test_every_form_of_url_is_told_apart(url, kind, shown):
    endpoint = read_url(url)

    assert (endpoint.kind, endpoint.shown, endpoint.url) == (kind, shown, url)


def test_a_sentinel_url_gives_hosts_service_login_and_database():
    endpoint = read_url("redis+sentinel://ada:p%40ss@one,two:26380/main/3")

    assert endpoint.hosts == (("one", 26379), ("two", 26380))
    assert (endpoint.service, endpoint.username, endpoint.password, endpoint.database) == ("main", "ada", "p@ss", 3)


def test_a_cluster_url_is_refused_as_not_supported_yet():
    with pytest.raises(ConfigError, match="Cluster is not supported yet"):
        read_url("redis+cluster://localhost")


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "unix://redis.sock", "embedded://shop/data"])
def test_any_other_url_is_refused_with_the_forms_there_are(url):
    with pytest.raises(ConfigError, match=r"redis://|unix:///|embedded:///"):
        read_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr/et@localhost:6379",
        "redis://:s3cret@localhost:port",
        "redis://:s3cret@localhost:6379/zero",
        "redis://:s3cret@[::1",
        "rediss+cluster://:s3cret@localhost",
        "https://:s3cret@localhost",
        "redis+sentinel://:s3cret@localhost",
        "redis+sentinel://:s3cret@localhost:port/main",
    ],
)
def test_no_error_about_a_url_and_no_repr_shows_the_password(url):
    with pytest.raises(FastQError) as caught:
        Config(url=url)

    assert "s3cr" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_neither_the_settings_nor_the_endpoint_show_the_password():
    config = Config(url="redis+sentinel://ada:s3cret@one/main", redis_options={"password": "s3cret"})

    assert "s3cret" not in f"{config!r} {config.endpoint()!r}"


def test_without_a_url_the_environment_is_read_at_each_use(monkeypatch):
    config = Config()
    monkeypatch.setenv("FASTQ_URL", "redis://elsewhere:1234/5")
    assert config.endpoint().shown == "redis://elsewhere:1234/5"

    monkeypatch.delenv("FASTQ_URL")
    assert config.endpoint().shown == "redis://localhost:6379/0"


@pytest.mark.parametrize(
    "settings",
    [
        {"namespace": "a b"},
        {"lease": 0.1},
        {"lease": "10"},
        {"max_queue": 0},
        {"max_payload": 2 << 20},
        {"max_crashes": 0},
        {"max_crashes": True},
        {"include": "shop.mail"},
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_its_name(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Config(**settings)
