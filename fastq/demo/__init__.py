"""The demo: a producer and workers on a server, and a proof that nothing was lost and nothing ran twice."""

# What the environment tells the processes of a demo.
NAMESPACE, LEDGER, JOBS = "FASTQ_DEMO_NAMESPACE", "FASTQ_DEMO_LEDGER", "FASTQ_DEMO_JOBS"
