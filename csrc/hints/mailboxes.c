/* Which batch a mailbox has: a page of a pool that all tenants share. When it is used up, whoever
 * has most pages loses the oldest of them, so that nobody loses one to somebody who has more. */
#include "internal.h"

static void leave(struct ps_hints *hints, uint32_t index) {
  const struct page *page = hints_page(hints, index);
  struct tenant *tenant = hints_tenant(hints, page->tenant);
  const struct links links = page->tenant_links;
  if (links.previous == NONE) {
    tenant->pages.first = links.next;
  } else {
    hints_page(hints, links.previous)->tenant_links.next = links.next;
  }
  if (links.next == NONE) {
    tenant->pages.last = links.previous;
  } else {
    hints_page(hints, links.next)->tenant_links.previous = links.previous;
  }
}

static void join(struct ps_hints *hints, uint32_t index) {
  struct page *page = hints_page(hints, index);
  struct tenant *tenant = hints_tenant(hints, page->tenant);
  page->tenant_links = (struct links){.previous = tenant->pages.last, .next = NONE};
  if (tenant->pages.last == NONE) {
    tenant->pages.first = index;
  } else {
    hints_page(hints, tenant->pages.last)->tenant_links.next = index;
  }
  tenant->pages.last = index;
}

static void forget_oldest(struct ps_hints *hints, uint16_t tenant) {
  struct tenant *who = hints_tenant(hints, tenant);
  uint32_t index = who->pages.first;
  assert(index != NONE && who->mailboxes[hints_page(hints, index)->mailbox] == index);
  leave(hints, index);
  who->mailboxes[hints_page(hints, index)->mailbox] = NONE;
  hints_share_sub(&hints->page_share, tenant);
  hints_give(&hints->pages, index);
}

uint32_t hints_open_page(struct ps_hints *hints, uint16_t tenant, uint32_t mailbox) {
  assert(hints != NULL && mailbox < PAX_MAILBOXES);
  struct tenant *who = hints_tenant(hints, tenant);
  uint32_t index = who->mailboxes[mailbox];
  if (index != NONE) {
    leave(hints, index);
  } else {
    index = hints_take(&hints->pages);
    if (index == NONE) {
      forget_oldest(hints, hints_share_victim(&hints->page_share, tenant));
      index = hints_take(&hints->pages);
    }
    assert(index != NONE);
    who->mailboxes[mailbox] = index;
    hints_share_add(&hints->page_share, tenant);
  }
  struct page *page = hints_page(hints, index);
  memset(page, 0, offsetof(struct page, bytes));
  page->tenant = tenant;
  page->mailbox = (uint8_t)mailbox;
  join(hints, index);
  return index;
}
