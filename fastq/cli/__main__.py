"""`python -P -m fastq.cli`: the command line without its script, as it starts its own children."""

from fastq.cli.main import main

if __name__ == "__main__":
    main()
