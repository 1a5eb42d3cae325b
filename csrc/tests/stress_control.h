/* The control plane of core_stress. */
#ifndef PRESTAGE_TESTS_STRESS_CONTROL_H
#define PRESTAGE_TESTS_STRESS_CONTROL_H

#include "stress.h"

enum volume_state {
  VOLUME_MAPPED,
  VOLUME_UNMAPPING,
  VOLUME_CLOSING,
  VOLUME_ABANDONED, /* closed without its namespace having been unmapped yet */
  VOLUME_CLOSED
};

struct control_volume {
  int number;
  enum volume_state state;
  bool is_unmapped, is_closed; /* ABANDONED */
  bool stays_closed;
  bool reopens;
};

struct control {
  struct ps_core *core;
  uint32_t reactors;
  uint64_t random;
  uint32_t connections; /* that the core has not reported closed */
  struct control_volume volumes[VOLUMES];
  char path[64];
  char specs[VOLUMES][256];
  bool can_stall, has_abandoned;
  uint32_t stalls; /* turns until the stall is released; 0: none */
  uint32_t cookie;
  bool is_extension_mapped[2];
  pthread_t model;
  bool has_model;
  _Atomic bool model_stops, core_stops;
  _Atomic uint64_t model_resets;
};

/* Cookies' indices: volumes, then the extension namespaces of the two subsystems. */
enum { EXTENSION_INDEX = VOLUMES, EXTENSIONS = 2, COOKIE_INDEX = 0xff };

void control_reset(struct control *control);
void control_open(struct control *control, uint32_t index);
void control_map(struct control *control, uint32_t index);
void control_notices(struct control *control);
void control_act(struct control *control);
bool control_commands_left(struct control *control);
void control_close_volumes(struct control *control);
bool control_volumes_left(struct control *control);
void control_check_rest(struct control *control);
uint32_t control_cookie(struct control *control, uint32_t index);

/* stress_control_hints.c */
void control_configure_hints(struct ps_hints_config *config);
void control_map_extension(struct control *control, uint32_t index);
void control_change_extension(struct control *control);

void control_warm_event(struct control *control, uint32_t tenant);
void control_look_at_hints(struct control *control);
bool control_hints_left(struct control *control);
void control_check_hints(struct control *control);

/* stress_model.c */
void model_start(struct control *control);
void model_stop(struct control *control);
void model_check(struct control *control);

/* Says what is under way, to standard error: for when it hangs. */
void control_describe(struct control *control);

#endif
