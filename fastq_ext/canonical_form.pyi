"""The writer of canonical forms. It has no Python face: `fastq_ext.canonical` is."""
