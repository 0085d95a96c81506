/* RPC frames as bytes: kinds, flags, and the header of 16 bytes. The page is docs/reference/rpc-protocol.md. */
#ifndef AIOFABRIC_RPC_WIRE_H
#define AIOFABRIC_RPC_WIRE_H

#include "base/references.h"

#include <endian.h>

/* rpc/protocol/frames.py */
enum frame_kind { START = 3, STATUS = 7 };
enum frame_flag { WITH_END = 0x01, WITH_MESSAGE = 0x02 };
#define HEADER 16
#define NO_INDEX 0xffff
#define NO_TIMEOUT UINT64_MAX
#define FRAME_COST 64

/* Numbers are little-endian. */
static inline uint64_t get_u64(const char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static inline uint32_t get_u32(const char *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static inline uint16_t get_u16(const char *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return le16toh(value);
}

static inline void put_header(char *at, int kind, int flags, uint16_t field, uint32_t length, uint64_t id)
{
	field = htole16(field);
	length = htole32(length);
	id = htole64(id);
	at[0] = (char) kind;
	at[1] = (char) flags;
	memcpy(at + 2, &field, sizeof(field));
	memcpy(at + 4, &length, sizeof(length));
	memcpy(at + 8, &id, sizeof(id));
}

#endif
