"""Events as they happen, taken up where a listener was cut off."""

from __future__ import annotations

import json
from itertools import islice

from .conftest import NPY, npy


def told(client, **given):
    """Read the events that there are: [(id, kind, facts)]."""
    text = client.get("/events", params={"follow": "false"}, **given).text
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "id" in fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


def test_a_listener_goes_on_after_the_last_event_that_it_saw(client, known, novel):
    for start in range(0, 40, 10):
        client.post("/observe", content=npy(known[start : start + 10]), headers=NPY)
    every = told(client, headers={"Last-Event-ID": "0"})
    assert [kind for _, kind, _ in every] == ["observed"] * 4
    assert [each["size"] for *_, each in every] == [10] * 4
    for place in range(4):
        rest = told(client, headers={"Last-Event-ID": str(every[place][0])})
        assert rest == every[place + 1 :]
    client.put("/rule", json={"accept": 0.9})
    more = told(client, headers={"Last-Event-ID": str(every[-1][0])})
    assert [kind for _, kind, _ in more] == ["rule-set"]
    assert more[0][2]["words"] == "accepts 90 % instead of 95 %, by person"
    assert told(client) == [], "without a place only what is new is told"


def test_events_come_while_somebody_listens(client, known):
    with client.stream("GET", "/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        client.post("/observe", content=npy(known[:3]), headers=NPY)
        found = list(islice(filter(None, lines), 3))
        assert found[1] == "event: observed"
        assert json.loads(found[2].removeprefix("data: "))["size"] == 3
