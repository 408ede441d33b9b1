/* terminal.h - whether the output is a terminal whose line can be rewritten, and how wide it is. */
#ifndef NW_OBSERVE_TERMINAL_H
#define NW_OBSERVE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Columns of a terminal, asked anew each time since windows change; 80 if it does not say; 0 if `out` is none. */
int nw_terminal_width(FILE *out);

/* Whether `out` is a terminal on which a line can be erased and written again. */
bool nw_terminal_can_rewrite(FILE *out);

#endif
