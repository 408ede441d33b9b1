/* units.c - quantities with units; see units.h. */
#define _GNU_SOURCE 1
#include "config/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
    const char *name;
    double size;
} unit;

static const unit times[] = {{"ns", 1},   {"us", 1e3}, {"\xc2\xb5s", 1e3}, {"\xce\xbcs", 1e3},
                             {"ms", 1e6}, {"s", 1e9},  {"min", 60e9},      {"h", 3600e9}};
static const unit bandwidths[] = {{"bit/s", 0.125},     {"kbit/s", 125}, {"Mbit/s", 125e3}, {"Gbit/s", 125e6},
                                  {"Tbit/s", 125e9},    {"B/s", 1},      {"kB/s", 1e3},     {"MB/s", 1e6},
                                  {"GB/s", 1e9},        {"TB/s", 1e12},  {"KiB/s", 1024},   {"MiB/s", 1048576},
                                  {"GiB/s", 1073741824}};
static const unit factors[] = {{"x", 1}};
static const unit parts[] = {{"", 1}, {"%", 0.01}};
static const double ten_years = 3.2e17; /* ns */

__attribute__((format(printf, 2, 3))) static const char *complain(nw_complaint *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->text, sizeof c->text, format, arguments);
    va_end(arguments);
    return c->text;
}

/* Reads [-]digits[.digits][e[+-]digits]. Returns what follows, or NULL. Hexadecimal, inf and nan are none. */
static const char *take_number(const char *text, double *number)
{
    const char *at = text + (*text == '-');
    if (!isdigit((unsigned char)*at)) return NULL;
    while (isdigit((unsigned char)*at)) at++;
    if (*at == '.') {
        if (!isdigit((unsigned char)at[1])) return NULL;
        at++;
        while (isdigit((unsigned char)*at)) at++;
    }
    if (*at == 'e' && isdigit((unsigned char)at[1 + (at[1] == '-' || at[1] == '+')])) {
        at += 2;
        while (isdigit((unsigned char)*at)) at++;
    }
    char digits[64];
    if (at - text >= (ptrdiff_t)sizeof digits) return NULL;
    memcpy(digits, text, (size_t)(at - text));
    digits[at - text] = 0;
    *number = strtod(digits, NULL);
    return isfinite(*number) ? at : NULL;
}

/* A number and one of the units. False where the text is something else. */
static bool take_unit(const char *text, const unit *units, size_t count, double *value)
{
    double number;
    const char *at = take_number(text, &number);
    if (!at) return false;
    at += *at == ' ';
    for (size_t i = 0; i < count; i++)
        if (strcmp(at, units[i].name) == 0) {
            *value = number * units[i].size;
            return true;
        }
    return false;
}
#define TAKE(text, units, value) take_unit(text, units, sizeof(units) / sizeof *(units), value)

const char *nw_units_time(const char *text, int64_t *ns, nw_complaint *c)
{
    double value;
    if (!TAKE(text, times, &value))
        return complain(c, "'%.60s' is not a time; write a number and ns, us, ms, s, min or h, such as 50 us", text);
    if (value < 0) return complain(c, "'%.60s' is negative; a time is at least 0", text);
    if (value > ten_years) return complain(c, "'%.60s' is more than ten years", text);
    *ns = llround(value);
    return NULL;
}

const char *nw_units_bandwidth(const char *text, double *bytes_per_second, nw_complaint *c)
{
    double value;
    if (strcmp(text, "unlimited") == 0) {
        *bytes_per_second = 0;
        return NULL;
    }
    if (!TAKE(text, bandwidths, &value))
        return complain(
            c,
            "'%.60s' is not a bandwidth; write a number and bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, "
            "MB/s, GB/s, TB/s, KiB/s, MiB/s or GiB/s, such as 10 Gbit/s, or unlimited",
            text);
    if (!(value >= 1 && value <= 1e15))
        return complain(c, "'%.60s' is out of range: a bandwidth is at least 1 B/s and at most 1000 TB/s, or unlimited",
                        text);
    *bytes_per_second = value;
    return NULL;
}

const char *nw_units_factor(const char *text, double *factor, nw_complaint *c)
{
    double value;
    if (!TAKE(text, factors, &value))
        return complain(c, "'%.60s' is not a factor; write a number and x, such as 4x", text);
    if (!(value > 0 && value <= 1e6))
        return complain(c, "'%.60s' is out of range: a factor is more than 0x and at most 1000000x", text);
    *factor = value;
    return NULL;
}

const char *nw_units_noise(const char *text, int64_t latency_ns, nw_noise *noise, nw_complaint *c)
{
    static const struct {
        const char *name;
        nw_noise_kind kind;
        double most;
        bool takes_time;
    } kinds[] = {{"lognormal ", NW_NOISE_LOGNORMAL, 3, false},
                 {"uniform ", NW_NOISE_UNIFORM, 1, true},
                 {"exponential ", NW_NOISE_EXPONENTIAL, 1000, true}};
    double value;
    *noise = (nw_noise){0};
    if (strcmp(text, "none") == 0) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strncmp(text, kinds[i].name, strlen(kinds[i].name)) != 0) continue;
        const char *rest = text + strlen(kinds[i].name);
        if (!TAKE(rest, parts, &value)) {
            if (!kinds[i].takes_time || latency_ns < 0 || !TAKE(rest, times, &value)) break;
            if (latency_ns == 0) return complain(c, "'%.60s' is jitter of a latency of 0; give a latency too", text);
            value /= (double)latency_ns;
        }
        if (!(value >= 0 && value <= kinds[i].most))
            return complain(c, "'%.60s' is out of range: %.*s goes from 0 to %g%s", text,
                            (int)strlen(kinds[i].name) - 1, kinds[i].name, kinds[i].most,
                            latency_ns > 0 ? " times the latency" : "");
        *noise = (nw_noise){value > 0 ? kinds[i].kind : NW_NOISE_NONE, value};
        return NULL;
    }
    return complain(c, "'%.60s' is not a distribution; write none, lognormal 0.2, uniform 10%% or exponential 0.5%s",
                    text, latency_ns >= 0 ? " (the last two also with a time: uniform 20 us)" : "");
}

const char *nw_units_number(const char *text, double least, double most, double *number, nw_complaint *c)
{
    const char *end = take_number(text, number);
    if (!end || *end) return complain(c, "'%.60s' is not a number", text);
    if (!(*number >= least && *number <= most))
        return complain(c, "'%.60s' is out of range: from %g to %g is possible", text, least, most);
    return NULL;
}

const char *nw_units_int(const char *text, int64_t least, int64_t most, int64_t *number, nw_complaint *c)
{
    size_t digits = strspn(text + (*text == '-'), "0123456789");
    if (digits == 0 || text[digits + (*text == '-')]) return complain(c, "'%.60s' is not a whole number", text);
    *number = digits > 18 ? INT64_MAX : strtoll(text, NULL, 10);
    if (*number < least || *number > most)
        return complain(c, "'%.60s' is out of range: from %" PRId64 " to %" PRId64 " is possible", text, least, most);
    return NULL;
}
