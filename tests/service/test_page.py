"""The page without a browser: escaped, refused, logged in, usable without scripts, nothing from outside."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import httpx
import pytest
import torch

from shels.agent.groups import Group, Groups
from shels.agent.inbox import numbers_of
from shels.service import views
from shels.service.access import Access, Caller
from shels.service.app import create_app
from shels.service.page.assets import address
from shels.service.page.rendering import VIEWS, done_message, templates
from shels.service.running import warmed_up
from tests.service.conftest import asked, until

PLACES = [where for where, _ in VIEWS.values()]
EVIL = "<script>alert(1)</script>\"'&"
TOKEN = "a-token-of-the-test"


class Tags(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def waiting(service, novel):
    """A service with novel images of two digits that wait for a name."""
    service.observe(torch.as_tensor(novel[:80])[:, None])
    until(lambda: service.bench.groups.found)
    return service


def _posted(client, where, **fields):
    return client.post(where, data=fields, headers={"Origin": str(client.base_url).rstrip("/")})


def test_every_view_answers_with_html_that_holds_no_inline_script_or_style_and_nothing_from_outside(
    waiting, client
):
    for where in (*PLACES, "/login", f"/page/why/{waiting.bench.waiting()[0]}"):
        answer = client.get(where)
        assert answer.status_code == 200, where
        assert answer.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        for tag, given in Tags(answer.text).found:
            assert "style" not in given, (where, tag, given)
            assert not any(name.startswith("on") for name in given), (where, tag)
            assert tag != "style", where
            assert tag != "script" or given["src"].startswith("/static/"), where
            assert not re.match(r"(?:\w+:)?//", given.get("src") or given.get("href") or ""), (where, given)


def test_a_name_that_is_markup_is_shown_as_text_in_every_view(waiting, client):
    group = waiting.bench.groups.found[0].id
    assert _posted(client, f"/page/groups/{group}", act="learn", name=EVIL).status_code == 303
    assert EVIL in waiting.snapshot.names
    for where in PLACES:
        text = client.get(where).text
        assert "<script>alert" not in text, where
        assert {tag for tag, given in Tags(text).found if tag == "script" and "src" not in given} == set()
    names = [given["value"] for tag, given in Tags(client.get("/page/new").text).found if tag == "option"]
    assert EVIL in names


def test_what_was_shown_is_what_is_learned_though_more_came_into_the_group_since(waiting, client):
    group = waiting.bench.groups.found[0]
    shown = group.members[:5]
    answer = _posted(
        client, f"/page/groups/{group.id}", act="learn", name="cow", members=",".join(map(str, shown))
    )
    assert answer.status_code == 303
    assert waiting.bench.changes[-1].members == shown


def test_what_was_shown_is_what_is_learned_though_its_group_was_replaced_since(waiting, client):
    group = waiting.bench.groups.found[0]
    members = ",".join(map(str, group.members))
    waiting.bench.groups = Groups(last=waiting.bench.groups.last)  # as a grouping may end that finds none
    answer = _posted(client, f"/page/groups/{group.id}", act="learn", name="cow", members=members)
    assert answer.status_code == 303, answer.text
    assert waiting.bench.changes[-1].members == group.members


def test_a_page_shows_of_each_group_the_images_that_it_would_name(waiting, client, monkeypatch):
    shown = waiting.shown_group

    def meanwhile(found, most):
        """Show a group, after which the background puts others in the place of all."""
        view, groups = shown(found, most), waiting.bench.groups
        last = groups.last + 1
        waiting.bench.groups = Groups((Group(f"g{last}", tuple(waiting.bench.waiting())),), last)
        return view

    before = {each.id: each.members for each in waiting.bench.listed()}
    monkeypatch.setattr(waiting, "shown_group", meanwhile)
    answer = client.get("/page/new")
    assert answer.status_code == 200, answer.text
    tags = Tags(answer.text).found
    sizes = {given["data-group"]: int(given["data-size"]) for _, given in tags if "data-size" in given}
    named = [numbers_of(given["value"]) for _, given in tags if given.get("name") == "members"]
    assert sizes == {group: len(members) for group, members in before.items()}
    assert named == [sorted(members) for members in before.values()]


def test_once_warmed_up_no_request_waits_for_routes_or_templates_to_be_made(service, monkeypatch):
    app = warmed_up(create_app(service))

    def late(*_, **__):
        raise AssertionError("this should have been made before the first request")

    monkeypatch.setattr("fastapi.routing.get_dependant", late)
    monkeypatch.setattr(templates(), "compile", late)
    with asked(app) as client:
        for where in (*PLACES, "/groups", "/quality"):
            assert client.get(where).status_code == 200, where
        assert client.get("/judge").status_code == 405


def test_head_answers_as_get_does_without_a_body(waiting, client):
    for where in (*PLACES, "/docs", "/groups", "/events"):
        answer = client.head(where)
        assert (answer.status_code, answer.content) == (200, b""), where
        assert "content-security-policy" in answer.headers
    assert client.head("/nothing").status_code == 404
    assert client.head("/judge").status_code == 405


def test_forms_work_without_scripts_and_lead_back_to_the_view(waiting, client):
    group = waiting.bench.groups.found[0].id
    headers = {"Origin": str(client.base_url).rstrip("/"), "Referer": f"{client.base_url}/page/new"}
    answer = client.post(
        f"/page/groups/{group}", data={"act": "learn", "name": "cow", "by": "Ada"}, headers=headers
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/page/new")
    assert (waiting.bench.changes[-1].by, waiting.snapshot.names[-1]) == ("Ada", "cow")
    assert _posted(client, "/page/classes", act="rename", name="cow", to="calf").status_code == 303
    assert _posted(client, "/page/undo", change=str(waiting.bench.changes[-1].id)).status_code == 303
    assert waiting.snapshot.names[-1] == "cow"
    assert _posted(client, "/page/rollback", version="1").status_code == 303
    assert "cow" not in waiting.snapshot.names


def test_forms_of_another_site_and_of_programs_are_refused(waiting, client):
    fields = {"act": "rubbish"}
    group = f"/page/groups/{waiting.bench.groups.found[0].id}"
    assert client.post(group, data=fields).status_code == 403
    assert client.post(group, data=fields, headers={"Origin": "https://elsewhere.test"}).status_code == 403
    assert client.post(group, data=fields, headers={"Origin": "null"}).status_code == 403
    assert client.post(group, data=fields, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert not waiting.bench.changes


def test_refusals_are_pages_for_people_and_messages_for_htmx(client):
    answer = client.get("/page/why/99999")
    assert answer.status_code == 404
    assert "image 99999 is not kept any more" in answer.text
    assert "<h1>" in answer.text
    answer = client.get("/page/why/99999", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["hx-retarget"]) == (404, "#message")
    assert 'role="alert"' in answer.text
    assert client.get("/static/../page.py").status_code == 404
    assert client.get("/static/shown.py").status_code == 404


def test_images_that_are_not_alike_are_named_by_selection_alone(waiting, client):
    answer = _posted(client, "/page/groups/rest", act="learn", name="cow")
    assert answer.status_code == 422
    assert "select those that are of one class" in answer.text


@pytest.fixture
def guarded(waiting):
    """A service that asks for tokens."""
    tokens = [
        (hashlib.sha256(f"{TOKEN}-{role}".encode()).hexdigest(), Caller("ada", role))
        for role in ("annotate", "admin")
    ]
    with asked(create_app(waiting, Access(tuple(tokens)))) as client:
        yield client


def test_without_a_session_the_login_form_comes_first_and_leads_back(guarded):
    answer = guarded.get("/page/history")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?back=/page/history")
    part = guarded.get("/page/live", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "/login?back=/")
    wrong = _posted(guarded, "/login", token="another", back="/page/history")
    assert wrong.status_code == 401
    assert "not known" in wrong.text
    assert not wrong.cookies
    answer = _posted(guarded, "/login", token=f"{TOKEN}-annotate", back="/page/history")
    assert (answer.status_code, answer.headers["location"]) == (303, "/page/history")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert guarded.get("/page/history").status_code == 200
    assert _posted(guarded, "/logout").headers["location"] == "/login"
    assert guarded.get("/page/history").status_code == 303


def test_the_login_form_leads_to_no_other_site(guarded):
    for back in ("https://elsewhere.test/", "//elsewhere.test", "/page/../x", "javascript:alert(1)"):
        answer = _posted(guarded, "/login", token=f"{TOKEN}-annotate", back=back)
        assert answer.headers["location"] == "/"


def test_a_session_of_another_site_changes_nothing_and_roles_hold(guarded, waiting):
    _posted(guarded, "/login", token=f"{TOKEN}-annotate")
    version = waiting.snapshot.version
    foreign = guarded.post("/page/undo", data={"change": "1"}, headers={"Origin": "https://elsewhere.test"})
    assert foreign.status_code == 403
    for where, fields in (("/page/rollback", {"version": "1"}), ("/page/rule", {"accept": "99"})):
        assert _posted(guarded, where, **fields).status_code == 403
    name = waiting.snapshot.names[0]
    assert _posted(guarded, "/page/classes", act="unlearn", name=name).status_code == 403
    assert waiting.snapshot.version == version
    text = guarded.get("/page/classes").text
    assert "Unlearn" not in text
    group = waiting.bench.groups.found[0].id
    assert (
        _posted(guarded, f"/page/groups/{group}", act="learn", name="cow", by="somebody else").status_code
        == 303
    )
    assert waiting.bench.changes[-1].by == "ada"


def test_vendored_scripts_are_the_files_whose_licence_stands_beside_them():
    folder = files("shels.service.page") / "static"
    licences = (folder / "LICENSES.txt").read_text()
    for name in ("htmx.min.js", "sse.min.js"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() in licences


def test_files_of_the_page_are_kept_for_good_under_an_address_of_their_content(client):
    where = address("page.css")
    answer = client.get(where)
    assert "immutable" in answer.headers["cache-control"]
    assert where.endswith(hashlib.sha256(answer.content).hexdigest()[:12])


def test_a_model_of_vectors_has_a_page_too(client, waiting, monkeypatch):
    monkeypatch.setattr(type(waiting), "shows_images", property(lambda _: False))
    text = client.get("/page/new").text
    assert "<img" not in text
    assert 'class="blank"' in text
    assert httpx.codes.is_success(client.get(f"/page/why/{waiting.bench.waiting()[0]}").status_code)


def test_what_the_library_warns_of_stands_in_the_message():
    words = "cow taken in from 4 images"
    change = views.ChangeView(9, "accommodated", words, "", "", 2, 1, 4, None, True, True, None)
    done = views.Done(change, 0.018, 0.046, 0.046, ["cow"], "", ["4 images of <cow> are few"])
    text = done_message(done).body.decode().replace("\N{NO-BREAK SPACE}", " ")
    assert "“cow” learned in 18 ms from 4 images, false alarms 4.6 % → 4.6 %" in text
    assert "4 images of &lt;cow&gt; are few" in text
    assert 'name="change" value="9"' in text


def test_a_promise_that_may_not_hold_says_so_beside_the_figures(client, service, monkeypatch):
    known = service.rule()
    monkeypatch.setattr(service, "rule", lambda: replace(known, doubt="class <0> had too few samples"))
    assert "class &lt;0&gt; had too few samples" in client.get("/page/quality").text
