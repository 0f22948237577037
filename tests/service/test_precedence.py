"""Work stands back while a request is under way, and is not kept from it for ever."""

from __future__ import annotations

import sys
import threading
import time

from shels.service.precedence import Precedence


def _counting(precedence, found, ended):
    def step():
        found.append(time.perf_counter())

    with precedence.standing_back():
        while not ended.is_set():
            step()


def _worked(precedence, seconds):
    """Let a thread work for so long, and give when it took its steps."""
    found, ended = [], threading.Event()
    thread = threading.Thread(target=_counting, args=(precedence, found, ended))
    thread.start()
    time.sleep(seconds)
    ended.set()
    thread.join()
    return found


def test_work_goes_on_once_no_request_is_under_way():
    precedence = Precedence()
    ended = []
    for _ in range(2):
        precedence.begin()
        threading.Timer(0.2, lambda: (precedence.end(), ended.append(time.perf_counter()))).start()
    steps = _worked(precedence, 0.4)
    before = sum(step < ended[-1] for step in steps)
    assert len(steps) - before > 2 * before


def test_work_that_stands_back_pauses_and_other_work_does_not():
    precedence = Precedence()
    precedence.begin()
    standing_back = len(_worked(precedence, 0.3))
    precedence.end()
    assert standing_back < len(_worked(precedence, 0.3)) / 2


def test_requests_without_end_leave_work_a_share():
    precedence = Precedence()
    precedence.begin()
    steps = _worked(precedence, 0.3)
    assert len(steps) > 100
    assert steps[-1] - steps[0] > 0.2


def test_the_thread_is_as_before_afterwards():
    precedence = Precedence()
    with precedence.standing_back():
        assert sys.getprofile() is not None
    assert sys.getprofile() is None


def test_a_request_to_judge_goes_before_learning_and_others_do_not(service, client, known):
    seen, begin = [], service.precedence.begin
    service.precedence.begin = lambda: (seen.append(True), begin())
    client.get("/groups")
    assert not seen
    assert client.post("/judge", json={"inputs": known[:1].tolist()}).status_code == 200
    assert client.post("/judge", content=b"nonsense").status_code == 415
    assert len(seen) == 2
    assert not service.precedence.under_way
