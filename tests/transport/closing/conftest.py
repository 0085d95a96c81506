"""In the processes of these tests, freed memory is overwritten, so that its use ends them (mallopt(3))."""

import pytest


@pytest.fixture(autouse=True)
def freed_memory_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
