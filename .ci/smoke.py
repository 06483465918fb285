"""Whether an installed fastq is whole: every module imports, every extension is compiled, the scripts are there.

    python -P .ci/smoke.py
"""

import importlib
import importlib.metadata
import importlib.resources
import pkgutil
from pathlib import Path

import fastq
import fastq_ext

OPTIONAL = {"pytest", "prometheus_client", "opentelemetry"}  # what fastq works with when it is there, and does not install itself
CHECKOUT = Path(__file__).resolve().parents[1]


def main() -> None:
    for package in (fastq, fastq_ext):
        folder = Path(package.__path__[0])
        assert CHECKOUT not in folder.parents, f"{folder} is the checkout's, not an installed one"
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    if (error.name or "").partition(".")[0] not in OPTIONAL:
                        raise
    scripts = [path.name for path in (importlib.resources.files("fastq.broker") / "lua").iterdir()]
    assert "enqueue.lua" in scripts, scripts
    print(f"fastq-queue {importlib.metadata.version('fastq-queue')} is whole in {Path(fastq.__path__[0]).parent}")


if __name__ == "__main__":
    main()
