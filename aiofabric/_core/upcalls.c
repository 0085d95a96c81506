/* What lower layers call of higher ones: see upcalls.h. */
#include "upcalls.h"

struct upcalls upcalls;
