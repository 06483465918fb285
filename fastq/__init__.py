"""fastq: a task queue on Redis."""
