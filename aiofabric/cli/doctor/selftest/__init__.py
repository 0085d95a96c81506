"""The self-test of a report: every kind of operation between two processes, on one host or on two.

Each check runs in two processes of its own. The side that measures connects by TCP to a server, which starts the other
side and gives it that connection: the two sides exchange addresses and results over it (`control`).
"""
