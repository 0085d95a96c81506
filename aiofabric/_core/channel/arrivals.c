/*
 * Data that arrived and was not taken yet, in frames: a frame costs the peer credits, which it gets back when the frame
 * was taken. Small frames are copied behind each other. A large one stays in the receive that holds it, so that its
 * data is copied once, to where the reader wants it.
 */
#include "channel/arrivals.h"
#include "base/references.h"
#include "channel/wire.h"
#include "messages/receive_pool.h"

#include <stdlib.h>

#define SPARE_FROM 65536	 /* bytes of a chunk that is kept for another frame */
#define SPARE_STEP 65536	 /* their rooms are multiples of it */
#define SPARE_MOST (4 << 20) /* bytes of all that are kept */
#define CHUNK_ROOM 960 /* bytes of small frames together: the allocator reuses blocks of up to 1,032 bytes without a search */

struct chunk {
	struct chunk *next;
	PoolBuffer *lent;	/* the receive that holds the frame; NULL: `store` holds frames, each behind its size */
	const char *bytes;
	Py_ssize_t at, end, room; /* `room` is 0 for a frame elsewhere */
	char store[];
};

/*
 * Chunks for large frames, of any channel of the process, until the next such frame. The allocator would give their
 * memory back to the kernel, which clears each page again: 100 MB by httpx over shm came at 0.74 GB/s, and at 1.25
 * without that.
 */
static struct {
	struct chunk *first;
	Py_ssize_t room; /* of all of them */
} spare;

static Py_ssize_t rounded(Py_ssize_t room)
{
	return (room + SPARE_STEP - 1) / SPARE_STEP * SPARE_STEP;
}

static struct chunk *take_spare(Py_ssize_t room)
{
	struct chunk **at, *chunk;

	for (at = &spare.first; (chunk = *at); at = &chunk->next)
		if (chunk->room == room) {
			*at = chunk->next;
			spare.room -= room;
			return chunk;
		}
	return NULL;
}

static struct chunk *new_chunk(Py_ssize_t room)
{
	struct chunk *chunk = NULL;

	if (room >= SPARE_FROM) {
		room = rounded(room);
		chunk = take_spare(room);
	}
	if (!chunk)
		chunk = malloc(sizeof(*chunk) + room);
	if (!chunk) {
		PyErr_NoMemory();
		return NULL;
	}
	*chunk = (struct chunk) {.room = room, .bytes = chunk->store};
	return chunk;
}

static void free_chunk(struct chunk *chunk)
{
	if (chunk->room < SPARE_FROM || spare.room + chunk->room > SPARE_MOST) {
		free(chunk);
		return;
	}
	spare.room += chunk->room;
	chunk->next = spare.first;
	spare.first = chunk;
}

static struct chunk *add_chunk(struct arrivals *self, Py_ssize_t room)
{
	struct chunk *chunk = new_chunk(room);

	if (!chunk)
		return NULL;
	if (self->last)
		self->last->next = chunk;
	else
		self->first = chunk;
	self->last = chunk;
	return chunk;
}

static int add_elsewhere(struct arrivals *self, const char *bytes, Py_ssize_t size, PoolBuffer *lent)
{
	struct chunk *chunk = add_chunk(self, 0);

	if (!chunk)
		return -1;
	chunk->bytes = bytes;
	chunk->end = size;
	chunk->lent = lent;
	self->size += size;
	return 0;
}

static int add_copy(struct arrivals *self, const char *bytes, Py_ssize_t size)
{
	struct chunk *chunk = self->last;
	uint32_t length = (uint32_t) size;
	Py_ssize_t need = size + (Py_ssize_t) sizeof(length);

	if (!chunk || chunk->room - chunk->end < need)
		chunk = add_chunk(self, need > CHUNK_ROOM ? need : CHUNK_ROOM);
	if (!chunk)
		return -1;
	memcpy(chunk->store + chunk->end, &length, sizeof(length));
	memcpy(chunk->store + chunk->end + sizeof(length), bytes, size);
	chunk->end += need;
	self->size += size;
	return 0;
}

/* A quarter of the pool stays posted, so that the frames without data always arrive. */
static int may_lend(const struct arrivals *self, const PoolBuffer *buffer, Py_ssize_t size)
{
	return buffer && size >= LEND_FROM && 4 * (self->lent + 1) <= 3 * buffer->pool->capacity;
}

int arrivals_append(struct arrivals *self, const char *bytes, Py_ssize_t size, PoolBuffer *buffer)
{
	if (!may_lend(self, buffer, size))
		return add_copy(self, bytes, size);
	if (add_elsewhere(self, bytes, size, buffer))
		return -1;
	Py_INCREF((PyObject *) buffer);
	self->lent++;
	return 1;
}

int arrivals_offer(struct arrivals *self, const char *bytes, Py_ssize_t size)
{
	assert(!self->offered);
	if (add_elsewhere(self, bytes, size, NULL))
		return -1;
	self->offered = self->last;
	return 0;
}

/* Copy the rest of an offered frame, in its place: it is the first one. */
static int copy_offered(struct arrivals *self, struct chunk *chunk)
{
	uint32_t length = (uint32_t) (chunk->end - chunk->at);
	struct chunk *copy = new_chunk((Py_ssize_t) (sizeof(length) + length));

	if (!copy)
		return -1;
	copy->next = chunk->next;
	copy->end = (Py_ssize_t) (sizeof(length) + length);
	memcpy(copy->store, &length, sizeof(length));
	memcpy(copy->store + sizeof(length), chunk->bytes + chunk->at, length);
	if (self->left) /* it has begun: behind its size */
		copy->at = (Py_ssize_t) sizeof(length);
	assert(chunk == self->first);
	self->first = copy;
	if (self->last == chunk)
		self->last = copy;
	free_chunk(chunk);
	return 0;
}

int arrivals_settle(struct arrivals *self, PoolBuffer *buffer)
{
	struct chunk *chunk = self->offered;

	if (!chunk)
		return 0;
	self->offered = NULL;
	if (!may_lend(self, buffer, chunk->end - chunk->at))
		return copy_offered(self, chunk);
	chunk->lent = (PoolBuffer *) new_ref(buffer);
	self->lent++;
	return 1;
}

/* Its callers cannot undo what they did: Ctrl-C is raised at the next bytecode, and other errors are reported. */
static void give_back(PoolBuffer *buffer)
{
	if (!pool_recycle(buffer))
		return;
	if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
		PyErr_Clear();
		PyErr_SetInterrupt();
	} else {
		PyErr_WriteUnraisable((PyObject *) buffer->pool);
	}
}

static void remove_first(struct arrivals *self, int recycle)
{
	struct chunk *first = self->first;
	PoolBuffer *lent = first->lent;

	self->first = first->next;
	if (!self->first)
		self->last = NULL;
	if (self->offered == first)
		self->offered = NULL;
	free_chunk(first);
	if (!lent)
		return;
	self->lent--;
	if (recycle)
		give_back(lent);
	Py_DECREF((PyObject *) lent);
}

static Py_ssize_t begin_frame(struct chunk *chunk)
{
	uint32_t length;

	if (!chunk->room)
		return chunk->end - chunk->at;
	memcpy(&length, chunk->store + chunk->at, sizeof(length));
	chunk->at += (Py_ssize_t) sizeof(length);
	return length;
}

Py_ssize_t arrivals_take(struct arrivals *self, char *to, Py_ssize_t most, long long *credits)
{
	Py_ssize_t done = 0;

	while (done < most && self->size) {
		struct chunk *first = self->first;
		Py_ssize_t count;

		if (!self->left)
			self->left = begin_frame(first);
		count = self->left < most - done ? self->left : most - done;
		memcpy(to + done, first->bytes + first->at, count);
		first->at += count;
		self->left -= count;
		self->size -= count;
		done += count;
		if (self->left)
			break;
		*credits += CREDITS_OF_FRAME;
		if (first->at == first->end)
			remove_first(self, 1);
	}
	*credits += done;
	return done;
}

static void drop_all(struct arrivals *self, int recycle)
{
	self->size = self->left = 0;
	while (self->first)
		remove_first(self, recycle);
}

void arrivals_drop(struct arrivals *self)
{
	drop_all(self, 1);
}

void arrivals_release(struct arrivals *self)
{
	drop_all(self, 0);
}

int arrivals_traverse(const struct arrivals *self, visitproc visit, void *arg)
{
	const struct chunk *chunk;

	for (chunk = self->first; chunk; chunk = chunk->next)
		Py_VISIT(chunk->lent);
	return 0;
}
