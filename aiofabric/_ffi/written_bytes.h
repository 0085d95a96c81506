/* See written_bytes.c. */
#ifndef AIOFABRIC_WRITTEN_BYTES_H
#define AIOFABRIC_WRITTEN_BYTES_H

/*
 * Bytes that were written to a connected TCP socket so far. -1: it has no room for more, which is so while the provider
 * has more data than the kernel accepts; or it is no connected TCP socket.
 */
long long aiofabric_written_bytes(int descriptor);

#endif
