/* Who holds most of what all tenants share. A tenant is in the list of its count; a count changes
 * by one at a time, so the highest list that is not empty is never far. */
#include "internal.h"

bool hints_share_init(struct ps_hints *hints, struct share *share, uint64_t items) {
  assert(hints != NULL && share != NULL);
  share->heads = hints_map(hints, items + 1, sizeof *share->heads);
  share->counts = hints_map(hints, hints->config.tenant_count, sizeof *share->counts);
  share->links = hints_map(hints, (uint64_t)hints->config.tenant_count + 1, sizeof *share->links);
  return share->heads != NULL && share->counts != NULL && share->links != NULL;
}

static void leave(struct share *share, uint16_t tenant) {
  struct links *links = &share->links[tenant + 1u];
  uint32_t count = share->counts[tenant];
  if (count == 0) return;
  if (links->previous != NONE) {
    share->links[links->previous].next = links->next;
  } else {
    assert(share->heads[count] == tenant + 1u);
    share->heads[count] = links->next;
  }
  if (links->next != NONE) share->links[links->next].previous = links->previous;
}

static void join(struct share *share, uint16_t tenant) {
  uint32_t count = share->counts[tenant];
  if (count == 0) return;
  uint32_t head = share->heads[count];
  share->links[tenant + 1u] = (struct links){.previous = NONE, .next = head};
  if (head != NONE) share->links[head].previous = tenant + 1u;
  share->heads[count] = tenant + 1u;
}

void hints_share_add(struct share *share, uint16_t tenant) {
  assert(share != NULL);
  leave(share, tenant);
  share->counts[tenant]++;
  join(share, tenant);
  if (share->counts[tenant] > share->most) share->most = share->counts[tenant];
}

void hints_share_sub(struct share *share, uint16_t tenant) {
  assert(share != NULL && share->counts[tenant] > 0);
  leave(share, tenant);
  share->counts[tenant]--;
  join(share, tenant);
  if (share->heads[share->most] == NONE) share->most--;
}

uint16_t hints_share_victim(const struct share *share, uint16_t tenant) {
  assert(share != NULL && share->most > 0 && share->heads[share->most] != NONE);
  if (share->counts[tenant] == share->most) return tenant;
  return (uint16_t)(share->heads[share->most] - 1);
}
