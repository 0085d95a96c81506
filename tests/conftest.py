"""The fixtures of all tests, each in a module of its own."""

pytest_plugins = [
    "tests.fixtures.hosts",  # first: the others read what it sets
    "tests.fixtures.header",
    "tests.fixtures.crashes",
    "tests.fixtures.deadline",
    "tests.fixtures.once",
    "tests.fixtures.combinations",
    "tests.fixtures.calls",
    "tests.fixtures.runs",
    "tests.fixtures.turns",
    "tests.fixtures.loops",
    "tests.fixtures.providers",
    "tests.fixtures.leaks",
    "tests.fixtures.registrations",
    "tests.fixtures.peers",
    "tests.fixtures.children",
    "tests.fixtures.certificates",
    "tests.fixtures.sides",
]
