"""Features, asynchronous events, Abort and keep alive on the admin queue."""

from __future__ import annotations

from nvme_tcp import commands as nvme

from ..probing import Site, probe, turns, variants


@variants(
    "ref",
    [
        ("Set 07 to FFFFFFFF", nvme.set_features(7, 0xFFFFFFFF), "0/02 dnr", ""),
        ("Set 07 to FFFF0000", nvme.set_features(7, 0xFFFF0000), "0/02 dnr", ""),
        ("Set KATO to 500 ms", nvme.set_features(0x0F, 500), "ok", ""),
        ("Get 07 of nsid FFFFFFFF", nvme.get_features(7, nsid=0xFFFFFFFF), "ok", ""),
        ("Get 0B", nvme.get_features(0x0B), "ok", ""),
        ("Get 0F", nvme.get_features(0x0F), "ok", ""),
        ("Get 06", nvme.get_features(6), "ok", ""),
        ("Get 7F", nvme.get_features(0x7F), "0/02 dnr", ""),
        ("Get C0", nvme.get_features(0xC0), "0/02 dnr", ""),
        ("Set C0", nvme.set_features(0xC0, 1), "0/02 dnr", ""),
        ("Get with reserved SEL", nvme.get_features(7, select=7), "0/02 dnr", "ok | 0/02"),
    ],
)
def feature(site: Site, entry: bytes) -> str:
    """Features by their status."""
    with site.pair(0) as controller:
        answer = controller.admin.execute(entry, site.silence_s)
        return answer.code if answer.is_ok else answer.text()


@probe("ref", right="ok")
def queue_count(site: Site) -> str:
    """Feature 07 with 0: both counts come back, 0-based, and as many queues connect."""
    with site.pair(0) as controller:
        answer = controller.admin.execute(nvme.set_features(7, 0))
        granted = answer.dw0
        assert answer.is_ok and granted & 0xFFFF == granted >> 16, answer.text()
        controller.add_queue(1)
        return "ok"


@variants(
    "C55",
    [
        ("EXHID", 1, "ok 16", "0/02 | ok 16"),
        ("without EXHID", 0, "0/02 | 0/0f | ok 8", "0/02"),
    ],
)
def host_identifier(site: Site, exhid: int) -> str:
    """Get Features 81h: 16 bytes on fabrics (Base 2.0, 5.27.1.25)."""
    with site.pair(0) as controller:
        entry = nvme.sqe(nvme.GET_FEATURES, cdw10=0x81, cdw11=exhid)
        answer = controller.admin.execute(entry, site.silence_s, expected=16)
        if answer.is_ok and exhid:
            assert answer.data == nvme.HOST_ID, answer.data
        return f"ok {len(answer.data)}" if answer.is_ok else answer.text()


@probe("C55", right="ok")
def features_carry_no_data(site: Site) -> str:
    """Only features with a data structure return data."""
    with site.pair(0) as controller:
        for fid in (0x06, 0x07, 0x0B, 0x0F):
            answer = controller.admin.execute(nvme.get_features(fid), expected=4096)
            assert not answer.data, (fid, len(answer.data))
        return "ok"


@probe("D71", right="1/05 dnr")
def one_aer_too_many(site: Site) -> str:
    """AERL + 1 wait, the next ends with Asynchronous Event Request Limit Exceeded."""
    with site.pair(0) as controller:
        limit = controller.identify(1)[259] + 1
        for _ in range(limit):
            controller.admin.submit(nvme.sqe(nvme.AER))
        answers = [controller.admin.execute(nvme.sqe(nvme.AER), site.silence_s) for _ in range(2)]
        assert answers[0].status == answers[1].status
        assert controller.admin.execute(nvme.sqe(nvme.ABORT, cdw10=0)).is_ok
        return answers[0].text()


@probe("D71", right="ok")
def aers_are_given_back(site: Site) -> str:
    """AERs of a host that vanished do not count for the next."""
    rounds = 20 if site.is_reference else turns("PRESTAGE_TEST_ROUNDS", 100)
    for _ in range(rounds):
        with site.pair(0) as controller:
            cids = [controller.admin.submit(nvme.sqe(nvme.AER)) for _ in range(4)]
            assert controller.admin.execute(nvme.sqe(nvme.ABORT, cdw10=0xFFFF)).is_ok
            assert not set(cids) & set(controller.admin.completions)
    return "ok"


@probe("D71", right="0/07 | ok", nvmet="ok")
def abort_of_an_aer(site: Site) -> str:
    """A waiting AER may be aborted: DW0 bit 0 says whether it was."""
    with site.pair(0) as controller:
        aer = controller.admin.submit(nvme.sqe(nvme.AER))
        answer = controller.admin.execute(nvme.abort(0, aer), site.silence_s)
        if answer.dw0 & 1:
            assert aer in controller.admin.in_flight
            return answer.code
        return controller.admin.wait(aer, site.silence_s).code


@probe("C56", right="ok")
def many_aborts_at_once(site: Site) -> str:
    """Eight in one segment: each succeeds or exceeds the limit, the first ACL + 1 succeed."""
    with site.pair(0) as controller:
        queue = controller.admin
        limit = controller.identify(1)[258] + 1
        entries = [nvme.with_cid(nvme.abort(1, 50 + index), 200 + index) for index in range(8)]
        cids = [queue.register(entry) for entry in entries]
        queue.connection.send(b"".join(queue.capsule(entry) for entry in entries))
        codes = [queue.wait(cid).code for cid in cids]
        assert codes[:limit] == ["ok"] * min(limit, 8), codes
        assert set(codes) <= {"ok", "1/03"}, codes
        return "ok"


@probe("C56", right="0/07", nvmet="silence")
def abort_of_a_write_without_its_data(site: Site) -> str:
    """A Write that still waits for H2CData ends with 0/07, and its late data does no harm."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        queue.write(0, b"o" * 65536, block)
        queue.answers_r2t = False
        entry = nvme.block_command(nvme.WRITE, 0, 65536 // block)
        cid = queue.submit(entry, data=b"n" * 65536, in_capsule=False)
        r2t = queue.wait_r2t()
        answer = controller.admin.execute(nvme.abort(queue.qid, cid), site.silence_s)
        assert answer.is_ok, answer.text()
        if answer.dw0 & 1:
            return "not aborted" if not site.is_reference else "silence"
        command = queue.in_flight[cid]
        ended = queue.wait(cid, site.silence_s)
        queue.in_flight[cid] = command
        queue.r2ts.append(r2t)
        queue.answer_r2t(r2t)
        del queue.in_flight[cid]
        assert queue.read(0, 65536 // block, block) == b"o" * 65536, "aborted data was written"
        return ended.code


@variants("ref", [("0", 0, "ok | 0/1a", "0/1a"), ("5 s", 5000, "ok", "")])
def keep_alive_with_kato(site: Site, kato: int) -> str:
    """Keep Alive on an I/O controller."""
    with site.pair(0, kato=kato) as controller:
        return controller.admin.execute(nvme.sqe(nvme.KEEP_ALIVE), site.silence_s).text()


@probe("D70", right="0/0a | 0/02", nvmet="0/02")
def second_of_a_fused_pair_alone(site: Site) -> str:
    """Ended under its own CID, and no waiting AER is completed by it."""
    with site.pair(1) as controller:
        aer = controller.admin.submit(nvme.sqe(nvme.AER))
        queue = controller.io[0]
        block = controller.block_size()
        entry = nvme.block_command(nvme.WRITE, 0, 1, flags=0x42)
        answer = queue.execute(entry, site.silence_s, data=bytes(block))
        controller.identify(1)
        assert aer in controller.admin.in_flight
        return answer.code
