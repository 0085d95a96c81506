"""``python -m tests.docs.workarounds`` writes docs/topics/workarounds.md from the table."""

from pathlib import Path

from aiofabric.workarounds import VARIABLE, WORKAROUNDS, Workaround

PAGE = Path(__file__).parent.parent.parent / "docs" / "topics" / "workarounds.md"

_HEAD = f"""\
# Workarounds

<!-- Written by python -m tests.docs.workarounds: change aiofabric/workarounds.py, not this. -->

aiofabric runs inside your program. It changes only its own objects and those of libfabric. If libfabric has a defect,
or lacks a function that a guarantee of the [design](../design.md) page needs, aiofabric uses a *workaround*. A
workaround changes things below libfabric's interface, such as the kernel's sockets that a provider opened, an
endpoint's memory in /dev/shm, or the environment. This page lists all workarounds.

A workaround acts only with a version of libfabric on which it was examined, and only if that version needs it.
`python -m aiofabric doctor` shows the state of each. To change it, set `{VARIABLE}` before the program starts, or call
`aiofabric.workarounds.switch` before the first endpoint is opened:

```sh
{VARIABLE}=no-pacing,no-coalescing python program.py  # without two
{VARIABLE}=none python program.py                     # without any
{VARIABLE}=none,half_open_clients python program.py   # with one only
```

A workaround that is named is on, even for versions of libfabric on which it was not examined. A word that
names none is logged as a warning at the first use.

```python
from aiofabric import workarounds

workarounds.switch("pacing", False)
print(workarounds.state("pacing"))
```

<!-- run
assert workarounds.state("pacing") == "off"
workarounds.switch("pacing", True)
-->

"""


def text() -> str:
    """The page."""
    return _HEAD + "\n".join(_section(each) for each in WORKAROUNDS.values())


def _section(each: Workaround) -> str:
    versions = " and ".join(str(first) if first == last else f"{first} to {last}" for first, last in each.examined)
    alone = "- **Beside another module that uses the same libfabric, such as an MPI:** off, unless it is named.\n"
    return (
        f"## {each.name}\n\n"
        f"{each.defect}\n\n"
        f"- **Touches:** {each.touches}\n"
        f"- **Proof:** {each.proof}\n"
        f"- **Without it:** {each.without}\n"
        f"{alone if each.alone else ''}"
        f"- **Examined with:** libfabric {versions}\n"
        f"- **Code and test:** `aiofabric/{each.code}`, `tests/{each.test}`\n"
        f"- **For libfabric's developers:** {each.report}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(text())
