"""The compiled part of fastq."""
