/* command_eval.c - `nowait eval CHECKPOINT`: loss and accuracy of saved weights on a dataset. */
#include "cli/command.h"
#include "cli/session.h"

nw_status nw_command_eval(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        printf("usage: nowait eval CHECKPOINT [options]\n\n"
               "CHECKPOINT is a run's directory, one of its checkpoints, or a .safetensors file (then give --model).\n"
               "Settings are those of the run; options replace them.\n\n");
        nw_options_help(NW_COMMAND_EVAL, stdout);
        return NW_OK;
    }
    nw_settings settings;
    int positional;
    nw_status status = nw_session_parse(NW_COMMAND_EVAL, argc, argv, &settings, &positional);
    if (status == NW_OK && positional != 1)
        status = NW_FAIL(NW_E_ARGUMENT, "'nowait eval' takes one checkpoint, not %d; --help tells more", positional);
    if (status == NW_OK) {
        nw_session_notes(&settings);
        nw_session_catch_signals();
        status = nw_session_evaluate(&settings, argv[0]);
    }
    nw_settings_free(&settings);
    return status;
}
