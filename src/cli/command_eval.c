/* command_eval.c - `nowait eval CHECKPOINT`: loss and accuracy of saved weights on a dataset. */
#include "cli/command.h"
#include "setup/session.h"

nw_status nw_command_eval(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        printf("usage: nowait eval CHECKPOINT [options]\n\n"
               "CHECKPOINT is a run's directory, one of its checkpoints, or a .safetensors file (then give --model).\n"
               "The run's own settings are used; options replace them.\n\n");
        nw_options_help(NW_COMMAND_EVAL, stdout);
        return NW_OK;
    }
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional;
    NW_TRY(nw_session_parse(NW_COMMAND_EVAL, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional != 1, NW_E_ARGUMENT, "'nowait eval' takes one checkpoint, not %d; see --help", positional);
    nw_session_notes(settings);
    nw_session_catch_signals();
    nw_eval_options options = nw_eval_options_of(settings);
    return nw_session_evaluate(&options, argv[0]);
}
