"""fastq beside other task queues, each in a virtual environment of its own: `python -m bench.peers`."""
