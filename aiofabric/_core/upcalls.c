/* Calls from a lower layer to a higher one: see upcalls.h. */
#include "upcalls.h"

struct upcalls upcalls;
