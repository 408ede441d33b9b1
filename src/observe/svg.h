/*
 * svg.h - for drawings: text with the escapes of XML, and a file that is complete or not there.
 *
 * The same drawing gives the same bytes.
 */
#ifndef NW_OBSERVE_SVG_H
#define NW_OBSERVE_SVG_H

#include "base/status.h"

#include <stdio.h>

/* Writes text as XML has it: markup escaped, control characters and bytes that are no UTF-8 as spaces. */
void nw_svg_text(FILE *out, const char *text);

/* Writes a drawing to `path`, which may be a device. NW_E_SYSTEM if that cannot be done whole; nothing is left behind
 * then. */
nw_status nw_svg_write(const char *path, void (*draw)(FILE *out, const void *drawing), const void *drawing);

#endif
