"""The compiled part of fastq; all else is in pyproject.toml."""
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = sorted(p.stem for p in Path("fastq_ext").glob("*.pyx"))
EXTENSIONS = [Extension(f"fastq_ext.{m}", [f"fastq_ext/{m}.pyx"], extra_compile_args=["-O3"]) for m in MODULES]
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "freethreading_compatible": False}

setup(ext_modules=cythonize(EXTENSIONS, build_dir="build/cython", compiler_directives=DIRECTIVES))
