"""Who may do what, and what other sites' pages may not."""

from __future__ import annotations

import pytest

from shels.errors import SettingsError
from shels.service.access import access_for, new_token, read_tokens
from shels.service.app import create_app
from shels.service.running import Address, Plan, serve

from .conftest import NPY, asked, npy
from .test_judging import refused

OPEN = {"/v2/health/live", "/v2/health/ready", "/docs", "/docs.css", "/openapi.json", "/session"}


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    return path, {role: new_token(path, role, f"the-{role}") for role in ("judge", "annotate", "admin")}


@pytest.fixture
def guarded(service, tokens):
    with asked(create_app(service, access_for("0.0.0.0", tokens[0]))) as client:
        yield client


def test_the_file_holds_digests_alone_and_is_for_its_owner(tokens):
    path, given = tokens
    text = path.read_text()
    assert all(token not in text for token in given.values())
    assert path.stat().st_mode & 0o077 == 0
    assert [caller.role for _, caller in read_tokens(path)] == ["judge", "annotate", "admin"]
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_tokens(path)


def test_each_role_may_do_what_those_below_it_may(guarded, tokens, known):
    body = npy(known[:2])
    allowed = {
        "judge": [("POST", "/judge", 200), ("GET", "/groups", 403), ("PUT", "/rule", 403)],
        "annotate": [("POST", "/judge", 200), ("GET", "/groups", 200), ("PUT", "/rule", 403)],
        "admin": [("POST", "/judge", 200), ("GET", "/groups", 200), ("PUT", "/rule", 200)],
    }
    for role, tries in allowed.items():
        for method, path, status in tries:
            headers = {"Authorization": f"Bearer {tokens[1][role]}"}
            given = (
                {"json": {"accept": 0.9}}
                if method == "PUT"
                else {"content": body}
                if method == "POST"
                else {}
            )
            answer = guarded.request(
                method, path, headers=headers | (NPY if method == "POST" else {}), **given
            )
            assert answer.status_code == status, (role, path, answer.text)
    assert guarded.get("/changes", headers=headers).json()[0]["by"] == "the-admin"


def test_nothing_is_told_to_whoever_has_no_token_but_that_it_runs(guarded):
    schema = guarded.app.openapi()["paths"]
    paths = {(method.upper(), path) for path, operations in schema.items() for method in operations}
    assert len(paths) > 20
    for method, path in paths:
        status = guarded.request(method, path.replace("{", "").replace("}", "")).status_code
        assert status in (401, 422) or path in OPEN, (method, path, status)
    refused(guarded.get("/groups", headers={"Authorization": "Bearer wrong"}), 401, "not known")
    assert guarded.get("/groups").headers["www-authenticate"] == "Bearer"


def test_a_browser_gets_a_session_that_ends(guarded, tokens):
    refused(guarded.post("/session", json={"token": "wrong"}), 401)
    answer = guarded.post("/session", json={"token": tokens[1]["annotate"]})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert tokens[1]["annotate"] not in cookie
    assert guarded.get("/groups").status_code == 200
    assert guarded.get("/session").json() == {"name": "the-annotate", "role": "annotate"}
    guarded.delete("/session")
    assert guarded.get("/groups").status_code == 401


def test_pages_of_other_sites_are_refused_also_when_their_name_points_here(service, known):
    with asked(create_app(service, access_for("127.0.0.1", None))) as client:
        host = client.base_url.netloc.decode()
        body = {"content": npy(known[:1])}
        assert client.post("/judge", headers=NPY | {"Origin": f"http://{host}"}, **body).status_code == 200
        refused(
            client.post("/judge", headers=NPY | {"Origin": "http://evil.example"}, **body),
            403,
            "another site",
        )
        refused(client.post("/judge", headers=NPY | {"Origin": "null"}, **body), 403)
        refused(client.post("/judge", headers=NPY | {"Sec-Fetch-Site": "cross-site"}, **body), 403)
        refused(client.get("/live", headers={"Host": "evil.example"}), 403, "evil.example")
        assert "access-control-allow-origin" not in client.options("/judge").headers


def test_off_the_loopback_address_it_does_not_start_without_tokens(tmp_path):
    with pytest.raises(SettingsError, match="--new-token"):
        serve(Plan(tmp_path, Address("0.0.0.0", 0)), print)
    with pytest.raises(SettingsError, match="port"):
        Address(port=70000)


def test_names_are_shown_as_they_are_and_never_become_paths(client, novel, directory):
    client.post("/observe", content=npy(novel), headers=NPY)
    before = {path.name for path in directory.parent.rglob("*")}
    name = "../../<script>alert(1)</script>"
    done = client.post("/groups/rest/name", json={"name": name, "images": list(range(1, 11))})
    assert done.status_code == 200, done.text
    assert name in done.json()["classes"]
    assert done.headers["content-type"] == "application/json"
    after = {path.name for path in directory.parent.rglob("*")}
    assert not any("script" in path for path in after - before)
    refused(client.post("/classes/rename", json={"name": name, "to": "a\x00b"}), 422, "to")
