"""aiofabric and its peers, side by side: ``python -m benchmarks``.

Three kinds of files. ``roster.py`` says who is compared and ``measures.py`` what is measured; both
are tables. ``contenders/`` holds one small file for each way to talk, all with the same two
functions. The rest starts pairs of processes, asks them, and prints what they answered.
"""
