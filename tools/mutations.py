"""The errors that `tools.mutate` puts into the native core: file, text, and the text in its place."""

C_ERRORS = (
    (
        "operation.c",
        "\tif (notify != Py_None) {\n\t\tself->notify",
        "\tif (notify != Py_None && !error) {\n\t\tself->notify",
    ),
    (
        "operation.c",
        "\tREPLACE(self->pins, new_ref(Py_None));\n\tif (operation_release_held",
        "\tif (operation_release_held",
    ),
    ("operation.c", "if (error && self->error == Py_None)", "if (error)"),
    ("operation.c", "if (left && !error && self->orphaned", "if (left && self->orphaned"),
    ("posting.c", "PyDict_Size(self->posted) < self->limit", "PyDict_Size(self->posted) <= self->limit"),
    ("posting.c", "!PyObject_Size(self->waiting) && PyDict", "PyDict"),
    ("slots.c", "\tself->in_use--;", "\t;"),
    ("fifo.c", "for (; i < self->count - 1; i++)", "for (; i < self->count - 2; i++)"),
    ("fifo.c", "for (i = self->count; i > index; i--)", "for (i = self->count; i > index + 1; i--)"),
    ("coalescing.c", "\t\tset_cork(socket, 0);", "\t\t;"),
    ("coalescing.c", "now_ns() - self->since > COALESCE_NS", "now_ns() - self->since < 0"),
    ("completions.c", "rc ? source_report(self, name_callback_failed) : 0;", "rc;"),
    ("completions.c", "upcalls.transfer.type) && !(entry->flags & OF_THE_PEER)", "upcalls.transfer.type)"),
    ("length_prefix.c", "size - start >= LENGTH", "size - start > LENGTH"),
    ("length_prefix.c", "if (length > size - start - LENGTH)", "if (length >= size - start - LENGTH)"),
    ("receive_pool.c", "\tif (--inbox->posted)", "\tif (inbox->posted--)"),
    ("receive_pool.c", "pool->nfree >= pool->batch ||", "pool->nfree > pool->batch ||"),
    ("registry.c", "object ? object : new_ref(Py_None);", "new_ref(object ? object : Py_None);"),
)
