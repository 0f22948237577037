from __future__ import annotations

import threading
from threading import Event

import pytest

from shels.training.tasks import following


def test_reports_come_in_the_order_in_which_they_were_told():
    def work(tell):
        for number in range(100):
            tell(number)

    assert list(following(work)) == list(range(100))


def test_at_the_end_the_work_is_finished():
    done = []

    def work(tell):
        tell("half")
        done.append(1)

    assert list(following(work)) == ["half"]
    assert done == [1]


def test_work_without_reports_gives_none_and_is_done():
    done = []
    assert list(following(lambda tell: done.append(1))) == []
    assert done == [1]


def test_a_report_comes_while_the_work_goes_on():
    heard = Event()

    def work(tell):
        tell("began")
        if not heard.wait(10):
            raise TimeoutError

    loop = following(work)
    assert next(loop) == "began"  # the work cannot end before this was heard
    heard.set()
    assert list(loop) == []


def test_nothing_begins_before_the_first_report_is_asked_for():
    began = []
    loop = following(lambda tell: began.append(1))
    assert began == []
    assert list(loop) == []
    assert began == [1]


def test_what_the_work_raises_is_raised_after_its_reports():
    error = ValueError("spoiled")

    def work(tell):
        tell(1)
        raise error

    loop = following(work)
    assert next(loop) == 1
    with pytest.raises(ValueError, match="spoiled") as raised:
        next(loop)
    assert raised.value is error


def test_an_interrupt_of_the_work_comes_through():
    def work(tell):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(following(work))


def test_an_error_can_be_a_report():
    assert [str(each) for each in following(lambda tell: tell(ValueError("told")))] == ["told"]


def test_leaving_the_loop_early_stops_the_work_at_its_next_report_and_waits_for_that():
    go, done = Event(), []
    before = threading.active_count()

    def work(tell):
        tell(1)
        go.wait(10)
        tell(2)
        done.append(1)

    loop = following(work)
    assert next(loop) == 1
    assert threading.active_count() == before + 1
    threading.Timer(0.05, go.set).start()
    loop.close()
    assert done == []  # it stopped at its next report
    assert threading.active_count() <= before + 1  # the timer may still be there
