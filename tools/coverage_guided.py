"""Coverage-guided fuzzing: libFuzzer (atheris) drives the property of each decoder in tests/fuzz.

python -m tools.coverage_guided RUNS          each property in a process of its own, RUNS inputs for each
python -m tools.coverage_guided RUNS NAME     one property; an input that fails is in build/fuzz afterwards

hypothesis turns libFuzzer's bytes into arguments (``fuzz_one_input``), so that both kinds of fuzzing share the
properties. Here libFuzzer sees which lines an input reaches, and keeps inputs that reach new ones.
"""

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

MODULES = ("tests.fuzz.test_decoders", "tests.fuzz.test_rpc")
SLOW = {"test_frames_of_a_channel", "test_tagged_messages_of_virtual_connections"}  # they open connections
FOUND = Path("build/fuzz/")


def properties() -> dict[str, Callable[[bytes], object]]:
    """The properties by name."""
    found: dict[str, Callable[[bytes], object]] = {}
    for module in map(import_module, MODULES):
        for name, function in vars(module).items():
            handle: Any = getattr(function, "hypothesis", None)
            if name.startswith("test_") and handle is not None and name not in SLOW:
                found[name] = handle.fuzz_one_input
    return found


def fuzz(name: str, runs: str) -> None:
    """Fuzz one property in this process; does not return."""
    import atheris

    with atheris.instrument_imports(include=["aiofabric"]):
        wanted = properties()[name]
    FOUND.mkdir(parents=True, exist_ok=True)
    atheris.Setup([sys.argv[0], f"-runs={runs}", f"-artifact_prefix={FOUND}/{name}-", "-verbosity=0"], wanted)
    atheris.Fuzz()


def main() -> None:
    runs, *names = sys.argv[1:]
    if names:
        fuzz(names[0], runs)
    failed = []
    for name in properties():
        print(name, flush=True)
        if subprocess.run([sys.executable, "-m", "tools.coverage_guided", runs, name], check=False).returncode:
            failed.append(name)
    print(f"{len(properties()) - len(failed)} properties hold; these do not: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
