"""Compare aiofabric with its peers: ``python -m benchmarks``.

There are three kinds of files. ``roster.py`` lists the programs that are compared and ``measures.py`` lists the
measures; both are tables. ``contenders/`` holds one small file for each way to communicate, all with the same two
functions. The other files start pairs of processes, send them requests, and print their answers.
"""
