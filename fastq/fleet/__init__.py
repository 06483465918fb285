"""The fleet: several worker processes of one program, kept running, watched over, and ended together.

`fleet` keeps the children in their places; `child` is one of them, seen from here, and `lifeline` the child's own end of the
channel between the two. `beats` beats for them, `limits` says when one is worn out, `launcher` starts them, each by a
program of its own or forked off the `template`, a process that has imported the program already; `reload` looks for changed
files, and `orphans` sees to what a process with pid 1 inherits.
"""
