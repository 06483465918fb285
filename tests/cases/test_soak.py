"""The soak (tests/soak) in its short form: eight seconds of random faults, and a ledger that must be right."""

from tests.support.process import ROOT, script

SOAK = "import sys; from tests.soak.__main__ import main; sys.argv[1:] = {arguments!r}; sys.exit(main())"


def test_nothing_is_lost_or_runs_twice_under_random_faults(server_kind: str) -> None:
    arguments = ["--minutes", "0.13", "--lease", "1.5", "--pause", "0.06", "--server", server_kind]
    with script(SOAK.format(arguments=arguments), cwd=ROOT) as soak:
        code = soak.wait(timeout=110)
    print(soak.stdout)
    assert code == 0, soak.stdout + soak.stderr[-3000:]
