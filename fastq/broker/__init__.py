"""The only part of fastq that speaks with Redis."""
