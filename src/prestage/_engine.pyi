# Types of the PDU engine's module; csrc/engine.h says what each thing means.

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

    def ps_engine_size(self, config: _CDataBase, /) -> int: ...
    def ps_engine_init(self, memory: _CDataBase, config: _CDataBase, /) -> _CDataBase: ...
    def ps_engine_receive(
        self, engine: _CDataBase, data: _CDataBase | bytes, size: int, /
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
    def ps_crc32c(self, data: _CDataBase | bytes, size: int, /) -> int: ...
