/* number.h - text to double, whatever the user's locale calls a decimal point. */
#ifndef NW_BASE_NUMBER_H
#define NW_BASE_NUMBER_H

#include "base/status.h"

/* The nearest double of a text that the caller has found to be a number; an infinity where it is too large.
 * NW_E_MEMORY if the C library has no room for its plain locale. */
nw_status nw_number_convert(const char *text, double *value);

#endif
