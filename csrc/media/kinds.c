/* The kinds of media there are. */
#include "internal.h"

const struct ps_kind_entry ps_kinds[] = {
    {.name = "file", .has_path = true, .open = ps_file_open},
    {.name = "ram", .open = ps_ram_open},
    {.name = NULL},
};
