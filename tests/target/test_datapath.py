from __future__ import annotations

from fake_data_path import run

from prestage.target.datapath import Cookies, DoneNotice


def test_a_notice_resolves_what_asked_for_it_once() -> None:
    async def main() -> None:
        cookies = Cookies()
        first, waiting = cookies.expect()
        second, other = cookies.expect()
        assert first != second
        cookies.resolve(DoneNotice(second, 7))
        assert not waiting.done() and other.result() == DoneNotice(second, 7)
        cookies.resolve(DoneNotice(second, 8))
        cookies.resolve(DoneNotice(999))
        assert not waiting.done()

    run(main())


def test_what_waits_for_a_connection_ends_with_it() -> None:
    async def main() -> None:
        cookies = Cookies()
        _, mine = cookies.expect(5)
        _, other = cookies.expect(6)
        cookies.drop(5)
        assert mine.result() is None and not other.done()

    run(main())


def test_cookies_wrap_and_skip_those_in_use() -> None:
    async def main() -> None:
        cookies = Cookies()
        first, _ = cookies.expect()
        cookies._next = 0xFFFFFFFF
        last, _ = cookies.expect()
        after, _ = cookies.expect()
        assert (first, last, after) == (1, 0xFFFFFFFF, 2)

    run(main())


def test_a_future_that_was_cancelled_is_left_alone() -> None:
    async def main() -> None:
        cookies = Cookies()
        cookie, waiting = cookies.expect(5)
        waiting.cancel()
        cookies.resolve(DoneNotice(cookie))
        cookie, waiting = cookies.expect(5)
        waiting.cancel()
        cookies.drop(5)

    run(main())
