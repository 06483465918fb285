"""What is listed by hand, in pyproject.toml, keeps up with what is there."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
CARRIED = {".py", ".pyi", ".lua", ".typed"}


def carried_files() -> list[Path]:
    return [path for top in ("fastq", "fastq_ext") for path in (ROOT / top).rglob("*.*") if path.suffix in CARRIED]


def test_every_folder_of_the_packages_is_listed_and_nothing_else():
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in carried_files()}

    assert set(SETTINGS["packages"]) == folders


def test_every_file_beside_the_modules_is_listed():
    listed = {
        path
        for package, patterns in SETTINGS["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }

    assert {path for path in carried_files() if path.suffix != ".py"} - listed == set()
