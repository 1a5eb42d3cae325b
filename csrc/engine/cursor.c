/* A place in somebody's iovec array: written to, read from or listed, byte by byte in order. */
#include "internal.h"

/* Bytes in a row at the cursor, of `size` wanted. */
static size_t row(const struct iovec *iov, size_t offset, size_t size) {
  assert(offset <= iov->iov_len);
  size_t rest = iov->iov_len - offset;
  return rest < size ? rest : size;
}

void ps_cursor_set(struct cursor *cursor, const struct iovec *iov, size_t iov_count,
                   uint32_t length) {
  assert(iov != NULL || length == 0);
  size_t total = 0;
  for (size_t i = 0; i < iov_count && total < length; i++) {
    assert(iov[i].iov_base != NULL || iov[i].iov_len == 0);
    total += iov[i].iov_len;
  }
  assert(total >= length);
  cursor->iov = iov;
  cursor->offset = 0;
  cursor->left = length;
}

void ps_cursor_advance(struct cursor *cursor, size_t size) {
  assert(size <= cursor->left);
  cursor->left -= (uint32_t)size;
  while (size > 0) {
    size_t step = row(cursor->iov, cursor->offset, size);
    cursor->offset += step;
    size -= step;
    if (cursor->offset == cursor->iov->iov_len) {
      cursor->iov++;
      cursor->offset = 0;
    }
  }
}

size_t ps_cursor_list(const struct cursor *cursor, size_t size, struct iovec *iov, size_t most) {
  assert(size <= cursor->left);
  const struct iovec *from = cursor->iov;
  size_t offset = cursor->offset;
  size_t count = 0;
  while (size > 0 && count < most) {
    size_t step = row(from, offset, size);
    if (step > 0) {
      iov[count].iov_base = (uint8_t *)from->iov_base + offset;
      iov[count].iov_len = step;
      count++;
    }
    size -= step;
    offset = 0;
    from++;
  }
  return count;
}

void ps_cursor_write(struct cursor *cursor, const uint8_t *bytes, size_t size) {
  assert(size <= cursor->left);
  while (size > 0) {
    size_t step = row(cursor->iov, cursor->offset, size);
    if (step > 0) memcpy((uint8_t *)cursor->iov->iov_base + cursor->offset, bytes, step);
    cursor->left -= (uint32_t)step;
    cursor->offset += step;
    bytes += step;
    size -= step;
    if (cursor->offset == cursor->iov->iov_len) {
      cursor->iov++;
      cursor->offset = 0;
    }
  }
}

uint32_t ps_cursor_crc(const struct cursor *cursor, size_t size, uint32_t crc) {
  assert(size <= cursor->left);
  const struct iovec *from = cursor->iov;
  size_t offset = cursor->offset;
  while (size > 0) {
    size_t step = row(from, offset, size);
    crc = ps_crc_extend(crc, (const uint8_t *)from->iov_base + offset, step);
    size -= step;
    offset = 0;
    from++;
  }
  return crc;
}
