/* number.h - text to numbers; to double, whatever the user's locale calls a decimal point. */
#ifndef NW_BASE_NUMBER_H
#define NW_BASE_NUMBER_H

#include "base/status.h"

/* The nearest double of a text that the caller has found to be a number; an infinity where it is too large.
 * NW_E_MEMORY if the C library has no room for its plain locale. */
nw_status nw_number_convert(const char *text, double *value);

/* Whether a name, of a directory say, is a whole number from 0 on as we write it: digits, without zeros before them. */
bool nw_number_of_name(const char *name, int64_t *number);

#endif
