"""Measurements of fastq: suites for pytest-benchmark, figures with bounds and a baseline. See docs/benchmarks.md."""
