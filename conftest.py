"""What tests/ and bench/ both need before anything else is imported."""

import sys
from pathlib import Path

# Behind everything else, never in front: `tests.support` is to be found here, but `fastq` where it is installed, since
# after `pip install .` the packages in this folder are the ones that are not compiled.
sys.path.append(str(Path(__file__).parent))

import fastq_ext  # only now can it be found

fastq_ext.check_fresh()  # tests of extensions that are older than their sources would tell nothing
