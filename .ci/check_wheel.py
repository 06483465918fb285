"""Compare the files of a wheel with the committed list: nothing may get in, or stay out, unnoticed.

    python .ci/check_wheel.py dist/fastq_queue-*.whl            compare; exit code 1 on a difference
    python .ci/check_wheel.py dist/fastq_queue-*.whl --write    accept what is there (then look at the diff)

The list holds names that every platform and version share: {tag} stands for an extension's suffix, {version} for the
version.
"""

import re
import sys
import zipfile
from pathlib import Path

LIST = Path(__file__).with_name("wheel-files.txt")


def files_of(wheel: Path) -> list[str]:
    names = zipfile.ZipFile(wheel).namelist()
    names = [re.sub(r"\.(?:cpython-|abi3)[^/]*\.so$", ".{tag}.so", name) for name in names if not name.endswith("/")]
    return sorted(re.sub(r"^fastq_queue-[^/]+\.dist-info/", "fastq_queue-{version}.dist-info/", name) for name in names)


def main(wheel: str, *options: str) -> int:
    found = files_of(Path(wheel))
    if "--write" in options:
        LIST.write_text("".join(f"{name}\n" for name in found))
        return 0
    expected = LIST.read_text().split()
    for name in sorted(set(found) - set(expected)):
        print(f"only in the wheel: {name}")
    for name in sorted(set(expected) - set(found)):
        print(f"only in {LIST.name}: {name}")
    return int(found != expected)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
