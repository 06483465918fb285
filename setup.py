"""The compiled part of fastq; everything else is in pyproject.toml.

FASTQ_DEBUG_BUILD=1 makes a debug build (bounds checks, line tracing, C asserts), for an environment of its own.
"""

import os
import runpy
import shutil
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# By its path: to import the package is to ask for the extensions that are yet to be built.
SOURCES = runpy.run_path("fastq_ext/_build.py")

DEBUG = os.environ.get("FASTQ_DEBUG_BUILD") == "1"
GENERATED = Path("build", "cython-debug" if DEBUG else "cython")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    "linetrace": DEBUG,
}
DEBUG_OPTIONS = {
    "define_macros": [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")],
    "extra_compile_args": ["-O0", "-g", "-UNDEBUG"],
}
OPTIONS = DEBUG_OPTIONS if DEBUG else {"extra_compile_args": ["-O3", "-g0"]}

NO_COMPILER = """

fastq is partly written in C, and {missing} to compile it with. Install a C compiler and Python's headers:
    Debian, Ubuntu   apt-get install gcc python3-dev
    Fedora, RHEL     dnf install gcc python3-devel
    Alpine           apk add gcc musl-dev python3-dev
    macOS            xcode-select --install
"""


class BuildExtensions(build_ext):
    """Generates the C files when it comes to building, so that a source distribution lists the .pyx files instead."""

    def run(self):
        if DEBUG and self.inplace:
            raise SystemExit("A debug build would take the place of the usual one here: use `pip install .`, not -e")
        super().run()

    def build_extensions(self):
        self.require_compiler()
        generated = cythonize(self.extensions, build_dir=str(GENERATED), compiler_directives=DIRECTIVES)
        sources = {ext.name: ext.sources for ext in generated}
        for ext in self.extensions:
            ext.sources = [*sources[ext.name], self.write_stamp(ext.name.rpartition(".")[2])]
        self.parallel = self.parallel or True  # as many compilers at once as there are cores
        super().build_extensions()

    def require_compiler(self):
        compiler = getattr(self.compiler, "compiler_so", ["cc"])[0]
        headers = Path(sysconfig.get_path("include"), "Python.h")
        if os.name == "posix" and not shutil.which(compiler):
            raise SystemExit(NO_COMPILER.format(missing=f"there is no {compiler}"))
        if os.name == "posix" and not headers.exists():
            raise SystemExit(NO_COMPILER.format(missing=f"there is no {headers}"))

    def write_stamp(self, module):
        """The C file with the stamp of `module`; written only when it changes, since a newer file means a new build."""
        path = GENERATED / "stamps" / f"{module}.c"
        code = f'const char fastq_build_{module}[] = "{SOURCES["stamp"](module, debug=DEBUG)}";\n'
        if not path.exists() or path.read_text() != code:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
        return str(path)


class BuildAfresh(build_py):
    """Starts from an empty folder: what an earlier build left there would go into the wheel, deleted modules too."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def extension(module):
    return Extension(
        f"fastq_ext.{module}",
        [f"fastq_ext/{module}.pyx"],
        depends=[str(path.relative_to(Path.cwd())) for path in SOURCES["shared_sources"]()],
        include_dirs=["fastq_ext"],
        **OPTIONS,
    )


setup(
    ext_modules=[extension(module) for module in SOURCES["modules"]()],
    cmdclass={"build_ext": BuildExtensions, "build_py": BuildAfresh},
)
