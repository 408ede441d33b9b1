/* exchange.c - the registry of exchanges. See exchange.h. */
#include "exchange/exchange.h"

#include "base/suggest.h"

#include <string.h>

static const struct {
    const char *name;
    nw_status (*create)(nw_machine **exchange, const nw_exchange_options *options);
} exchanges[] = {
    {"none", nw_none_create},
    {"allreduce", nw_allreduce_create},
    {"local", nw_local_sgd_create},
    {"server", nw_server_create},
    {"gossip", nw_gossip_create},
};
enum { EXCHANGES = sizeof exchanges / sizeof exchanges[0] };

nw_status nw_exchange_create(nw_machine **out, const nw_exchange_options *options)
{
    const char *names[EXCHANGES];
    *out = NULL;
    for (int i = 0; i < EXCHANGES; i++) {
        names[i] = exchanges[i].name;
        if (strcmp(options->name, exchanges[i].name) == 0) return exchanges[i].create(out, options);
    }
    return NW_FAIL(NW_E_UNKNOWN, "there is no exchange '%s'%s", options->name,
                   nw_suggest(options->name, names, EXCHANGES, "").text);
}

void nw_exchange_free(nw_machine *machine)
{
    if (machine) machine->ops->free(machine);
}
