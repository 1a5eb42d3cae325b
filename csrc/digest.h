/* Which digests a connection has (TCP 1.0, 3.6.2.2, DGST): both extension modules say it so. */
#ifndef PRESTAGE_DIGEST_H
#define PRESTAGE_DIGEST_H

/* cffi: begin */
enum ps_digest { PS_DIGEST_HEADER = 1, PS_DIGEST_DATA = 2 };
/* cffi: end */

#endif
