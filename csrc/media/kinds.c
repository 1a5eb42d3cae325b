/* The kinds of media there are. */
#include "internal.h"

const struct ps_kind_entry ps_kinds[] = {
    {.name = "file", .has_path = true, .open = ps_file_open},
    {.name = "ram", .open = ps_ram_open},
    {.name = "model", .has_path = true, .open = ps_model_open},
    {.name = "delay", .is_wrapper = true, .open = ps_delay_open},
    {.name = "error", .is_wrapper = true, .open = ps_error_open},
    {.name = "stall", .is_wrapper = true, .open = ps_stall_open},
    {.name = "powercut", .is_wrapper = true, .open = ps_powercut_open},
    {.name = NULL},
};
