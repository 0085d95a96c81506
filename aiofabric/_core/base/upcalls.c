/* Calls from a lower layer to a higher one: see upcalls.h. */
#include "base/upcalls.h"

struct upcalls upcalls;
