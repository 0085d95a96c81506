/* The clock that every window is measured by. */
#ifndef AIOFABRIC_CLOCK_H
#define AIOFABRIC_CLOCK_H

#include <time.h>

static inline long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (long long) now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
