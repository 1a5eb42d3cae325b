/* Intrusive doubly linked lists by index. */
#include "internal.h"

static struct links *at(const struct list *list, uint32_t index) {
  assert(index != NONE);
  return (struct links *)(void *)(list->links + (size_t)index * list->stride);
}

void tier_list_init(struct list *list, void *links, size_t stride) {
  assert(links != NULL && stride >= sizeof(struct links));
  *list = (struct list){.links = links, .stride = stride, .first = NONE, .last = NONE};
}

uint32_t tier_list_next(const struct list *list, uint32_t index) { return at(list, index)->next; }

uint32_t tier_list_previous(const struct list *list, uint32_t index) {
  return at(list, index)->previous;
}

/* Insert `index` behind `before`, at the front when that is NONE. */
void tier_list_insert_after(struct list *list, uint32_t index, uint32_t before) {
  struct links *links = at(list, index);
  assert(index != before);
  links->previous = before;
  links->next = before == NONE ? list->first : at(list, before)->next;
  if (before == NONE) {
    list->first = index;
  } else {
    at(list, before)->next = index;
  }
  if (links->next == NONE) {
    list->last = index;
  } else {
    at(list, links->next)->previous = index;
  }
  list->length++;
}

void tier_list_append(struct list *list, uint32_t index) {
  tier_list_insert_after(list, index, list->last);
}

void tier_list_prepend(struct list *list, uint32_t index) {
  tier_list_insert_after(list, index, NONE);
}

void tier_list_remove(struct list *list, uint32_t index) {
  struct links *links = at(list, index);
  assert(list->length > 0);
  if (links->previous == NONE) {
    assert(list->first == index);
    list->first = links->next;
  } else {
    at(list, links->previous)->next = links->next;
  }
  if (links->next == NONE) {
    assert(list->last == index);
    list->last = links->previous;
  } else {
    at(list, links->next)->previous = links->previous;
  }
  links->previous = NONE;
  links->next = NONE;
  list->length--;
}
