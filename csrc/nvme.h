/* NVMe and NVMe/TCP numbers that the C side needs. NVMe Base 2.0, NVM Command Set 1.0 and
 * NVMe/TCP Transport 1.0; the clause stands at each group.
 */
#ifndef PRESTAGE_NVME_H
#define PRESTAGE_NVME_H

#include <stdint.h>

/* PDU types and lengths (TCP 1.0, 3.6.2, figure 10 and following). */
enum ps_pdu_type {
  PS_PDU_ICREQ = 0x00,
  PS_PDU_ICRESP = 0x01,
  PS_PDU_H2C_TERM = 0x02,
  PS_PDU_C2H_TERM = 0x03,
  PS_PDU_COMMAND = 0x04,
  PS_PDU_RESPONSE = 0x05,
  PS_PDU_H2C_DATA = 0x06,
  PS_PDU_C2H_DATA = 0x07,
  PS_PDU_R2T = 0x09
};

/* Common header FLAGS (TCP 1.0, 3.6.2). */
enum ps_pdu_flag {
  PS_PDU_HDGST = 1 << 0,
  PS_PDU_DDGST = 1 << 1,
  PS_PDU_LAST = 1 << 2,
  PS_PDU_SUCCESS = 1 << 3
};

/* Fatal error status (TCP 1.0, 3.6.2.5, C2HTermReq). */
enum ps_fes {
  PS_FES_INVALID_FIELD = 0x01,
  PS_FES_SEQUENCE = 0x02,
  PS_FES_HEADER_DIGEST = 0x03,
  PS_FES_OUT_OF_RANGE = 0x04,
  PS_FES_LIMIT = 0x05, /* R2T limit (to a host), data transfer limit (to a target) */
  PS_FES_PARAMETER = 0x06
};

/* NVM command set opcodes (NVM 1.0, figure 16) and fabrics (Base 2.0, figure 31). */
enum ps_opcode {
  PS_OP_FLUSH = 0x00,
  PS_OP_WRITE = 0x01,
  PS_OP_READ = 0x02,
  PS_OP_COMPARE = 0x05,
  PS_OP_WRITE_ZEROES = 0x08,
  PS_OP_DATASET_MANAGEMENT = 0x09,
  PS_OP_VERIFY = 0x0c,
  PS_OP_COPY = 0x19,
  PS_OP_FABRICS = 0x7f
};

/* Status field without the phase bit: DNR << 14 | SCT << 8 | SC (Base 2.0, figure 90 and on). */
#define PS_STATUS(sct, sc) ((uint16_t)((sct) << 8 | (sc)))
#define PS_DNR ((uint16_t)(1u << 14))

enum ps_status {
  PS_SC_SUCCESS = 0x000,
  PS_SC_INVALID_OPCODE = 0x001,
  PS_SC_INVALID_FIELD = 0x002,
  PS_SC_DATA_TRANSFER_ERROR = 0x004,
  PS_SC_INTERNAL = 0x006,
  PS_SC_ABORT_REQUESTED = 0x007,
  PS_SC_ABORTED_FUSED = 0x009, /* Command Aborted due to Failed Fused Command */
  PS_SC_MISSING_FUSED = 0x00a, /* Command Aborted due to Missing Fused Command */
  PS_SC_INVALID_NAMESPACE = 0x00b,
  PS_SC_SEQUENCE_ERROR = 0x00c,
  PS_SC_SGL_LENGTH = 0x00f, /* Data SGL Length Invalid */
  PS_SC_SGL_TYPE = 0x011,
  PS_SC_ATOMIC_EXCEEDED = 0x014, /* Atomic Write Unit Exceeded */
  PS_SC_SGL_OFFSET = 0x016,
  PS_SC_WRITE_PROTECTED = 0x020, /* Namespace is Write Protected */
  PS_SC_TRANSIENT_TRANSPORT = 0x022,
  PS_SC_LBA_RANGE = 0x080,
  PS_SC_CAPACITY = 0x081, /* Capacity Exceeded */
  PS_SC_NOT_READY = 0x082,
  PS_SC_COPY_SIZE_LIMIT = 0x183, /* Command Size Limit Exceeded */
  PS_SC_WRITE_FAULT = 0x280,
  PS_SC_READ_ERROR = 0x281, /* Unrecovered Read Error */
  PS_SC_COMPARE_FAILURE = 0x285
};

/* SGL descriptor type and subtype byte (Base 2.0, 4.1.2). */
enum ps_sgl { PS_SGL_IN_CAPSULE = 0x01, PS_SGL_TRANSPORT = 0x5a };

#endif
