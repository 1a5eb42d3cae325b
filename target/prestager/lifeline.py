"""Ends the prestager's process when it hangs and the target, which would kill it, is gone.

A process that runs in order hears by its socket that the target has gone, and keeps what it has
learned. One that hangs in its own code looks at no socket; these are the kernel's means.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

__all__ = ["Lifeline"]

PR_SET_PDEATHSIG: Final = 1
"""<linux/prctl.h>"""


class Lifeline:
    """Made once, in the main thread, before anything that may hang.

    `hang_s`: processor time without `renew` after which the kernel ends the process by SIGPROF,
    whatever it is in. It is processor time, for a process that was stopped has done nothing wrong.
    `orphan_s`: so long after the target's death the kernel ends it by SIGALRM, if it has not ended
    in order. This needs the interpreter, which a process that waits in vain has, and one in a loop
    of Python too.
    """

    def __init__(self, hang_s: float, orphan_s: float) -> None:
        self._hang_s, self._orphan_s = hang_s, orphan_s
        self._target = os.getppid()
        for number in (signal.SIGPROF, signal.SIGALRM):
            # What was ignored by whoever started the target would be ignored here.
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF, signal.SIGALRM, signal.SIGCONT})
        self.renew()
        signal.signal(signal.SIGCONT, self._continued)
        # Should the target die while this process is stopped, it goes on and hears of it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)

    def renew(self) -> None:
        """Go on: the process does not hang."""
        signal.setitimer(signal.ITIMER_PROF, self._hang_s)

    def _continued(self, *_: object) -> None:
        # It is sent when the thread that started this process ends, and by people, too.
        if os.getppid() != self._target:
            signal.setitimer(signal.ITIMER_REAL, self._orphan_s)
