# Types of the PDU engine's module; csrc/engine.h and csrc/host.h say what each thing means.

from _cffi_backend import FFI, _CDataBase

ffi: FFI
lib: _Lib

class _Lib:
    # enum ps_role
    PS_ROLE_TARGET: int
    PS_ROLE_HOST: int
    # enum ps_digest
    PS_DIGEST_HEADER: int
    PS_DIGEST_DATA: int
    # enum ps_engine_event_kind
    PS_EVENT_NONE: int
    PS_EVENT_CONNECTED: int
    PS_EVENT_COMMAND: int
    PS_EVENT_DATA: int
    PS_EVENT_SENT: int
    PS_EVENT_COMPLETION: int
    PS_EVENT_TERMINATED: int
    # enum ps_transfer
    PS_TRANSFER_NONE: int
    PS_TRANSFER_FROM_CONTROLLER: int
    PS_TRANSFER_TO_CONTROLLER: int
    PS_TRANSFER_IN_CAPSULE: int
    # enum ps_host_news
    PS_HOST_CONNECTED: int
    PS_HOST_COMPLETIONS: int
    PS_HOST_FREED: int
    PS_HOST_ENDED: int
    PS_HOST_BLOCKED: int
    PS_HOST_MORE: int
    PS_HOST_OVER: int
    # enum ps_host_end
    PS_HOST_CLOSED: int
    PS_HOST_FAILED: int
    PS_HOST_TERMINATED: int
    # enum ps_host_piece_state
    PS_PIECE_WAITING: int
    PS_PIECE_STARTED: int
    PS_PIECE_DONE: int
    # enum ps_host_batch_end
    PS_BATCH_RUNNING: int
    PS_BATCH_DONE: int
    PS_BATCH_FAILED: int
    PS_BATCH_OVERDUE: int
    PS_BATCH_LOST: int
    PS_BATCH_STOPPED: int

    def ps_engine_size(self, config: _CDataBase, /) -> int: ...
    def ps_engine_init(self, memory: _CDataBase, config: _CDataBase, /) -> _CDataBase: ...
    def ps_engine_receive(
        self, engine: _CDataBase, data: _CDataBase | bytes, size: int, /
    ) -> int: ...
    def ps_engine_peek(
        self,
        engine: _CDataBase,
        data: _CDataBase | bytes,
        size: int,
        entries: _CDataBase,
        most: int,
        /,
    ) -> int: ...
    def ps_engine_destination(self, engine: _CDataBase, iov: _CDataBase, most: int, /) -> int: ...
    def ps_engine_received(self, engine: _CDataBase, size: int, /) -> None: ...
    def ps_engine_next_event(self, engine: _CDataBase, event: _CDataBase, /) -> bool: ...
    def ps_engine_output(self, engine: _CDataBase, iov: _CDataBase, most: int, /) -> int: ...
    def ps_engine_sent(self, engine: _CDataBase, size: int, /) -> None: ...
    def ps_engine_is_terminated(self, engine: _CDataBase, /) -> bool: ...
    def ps_engine_digests(self, engine: _CDataBase, /) -> int: ...
    def ps_engine_bind(
        self,
        engine: _CDataBase,
        sq_size: int,
        flow_control_disabled: bool,
        in_capsule_size: int,
        success_allowed: bool,
        /,
    ) -> None: ...
    def ps_engine_take(
        self, engine: _CDataBase, slot: int, iov: _CDataBase, iov_count: int, length: int, /
    ) -> None: ...
    def ps_engine_skip(self, engine: _CDataBase, slot: int, /) -> None: ...
    def ps_engine_respond(
        self,
        engine: _CDataBase,
        slot: int,
        status: int,
        dw0: int,
        dw1: int,
        iov: _CDataBase,
        iov_count: int,
        data_length: int,
        /,
    ) -> None: ...
    def ps_engine_find(self, engine: _CDataBase, cid: int, /) -> int: ...
    def ps_engine_is_receiving(self, engine: _CDataBase, slot: int, /) -> bool: ...
    def ps_engine_terminate(self, engine: _CDataBase, fes: int, fei: int, /) -> None: ...
    def ps_engine_submit(
        self,
        engine: _CDataBase,
        sqe: _CDataBase | bytes,
        transfer: int,
        iov: _CDataBase,
        iov_count: int,
        length: int,
        /,
    ) -> int: ...
    def ps_engine_keep(self, engine: _CDataBase, slot: int, /) -> None: ...
    def ps_engine_let_go(self, engine: _CDataBase, slot: int, /) -> None: ...
    def ps_crc32c(self, data: _CDataBase | bytes, size: int, /) -> int: ...
    def ps_host_size(self, config: _CDataBase, /) -> int: ...
    def ps_host_init(
        self, memory: _CDataBase, config: _CDataBase, socket: int, /
    ) -> _CDataBase: ...
    def ps_host_state(self, host: _CDataBase, /) -> _CDataBase: ...
    def ps_host_attach(
        self, host: _CDataBase, work: _CDataBase, in_capsule_size: int, /
    ) -> None: ...
    def ps_host_submit(
        self,
        host: _CDataBase,
        sqe: _CDataBase | bytes,
        transfer: int,
        address: _CDataBase,
        length: int,
        deadline_us: int,
        /,
    ) -> int: ...
    def ps_host_redirect(self, host: _CDataBase, slot: int, address: _CDataBase, /) -> None: ...
    def ps_host_keep(self, host: _CDataBase, slot: int, /) -> None: ...
    def ps_host_let_go(self, host: _CDataBase, slot: int, /) -> bool: ...
    def ps_host_receive(self, host: _CDataBase, now_us: int, /) -> int: ...
    def ps_host_send(self, host: _CDataBase, now_us: int, /) -> int: ...
    def ps_host_send_last(self, host: _CDataBase, /) -> None: ...
    def ps_host_add(self, work: _CDataBase, batch: _CDataBase, /) -> None: ...
    def ps_host_fill(self, host: _CDataBase, most: int, now_us: int, /) -> int: ...
    def ps_host_stop(self, work: _CDataBase, batch: _CDataBase, /) -> None: ...
    def ps_host_recut(
        self, work: _CDataBase, batch: _CDataBase, pieces: _CDataBase, count: int, /
    ) -> None: ...
    def ps_host_next_ended(self, work: _CDataBase, /) -> _CDataBase: ...
    def ps_host_detach(self, host: _CDataBase, batch: _CDataBase, memory: _CDataBase, /) -> int: ...
    def ps_host_deadline(self, host: _CDataBase, /) -> int: ...
    def ps_host_overdue(self, host: _CDataBase, now_us: int, /) -> int: ...
    def ps_host_lose(self, host: _CDataBase, may_repeat: bool, /) -> None: ...
