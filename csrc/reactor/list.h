/* Intrusive doubly linked lists. A link that is in no list has NULL in it. */
#ifndef PRESTAGE_REACTOR_LIST_H
#define PRESTAGE_REACTOR_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct link {
  struct link *next, *previous;
};

static inline void list_init(struct link *list) { list->next = list->previous = list; }
static inline bool list_is_empty(const struct link *list) { return list->next == list; }
static inline bool link_is_in(const struct link *link) { return link->next != NULL; }
static inline void list_append(struct link *list, struct link *link) {
  link->previous = list->previous;
  link->next = list;
  list->previous->next = link;
  list->previous = link;
}
static inline void list_remove(struct link *link) {
  link->previous->next = link->next;
  link->next->previous = link->previous;
  link->next = link->previous = NULL;
}
/* The first, taken out; NULL when there is none. */
static inline struct link *list_pop(struct link *list) {
  struct link *link = list->next;
  if (link == list) return NULL;
  list->next = link->next;
  link->next->previous = list;
  link->next = link->previous = NULL;
  return link;
}
static inline void list_move(struct link *to, struct link *from) {
  for (struct link *link; (link = list_pop(from)) != NULL;) list_append(to, link);
}
#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

#endif
