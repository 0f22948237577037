"""The page as a person uses it, in a real Chromium: the whole story by keyboard, and what a checker finds."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from shels.agent.inbox import numbers_of, ranges
from shels.data.sources import load_named
from shels.service.app import create_app
from shels.service.page.rendering import VIEWS
from shels.training import Progress
from tests.service.browsing import browser, problems_for_readers, watched
from tests.service.conftest import asked, until

NAMES = {4: "four", 6: "six", 9: "nine"}
LEARNED = r"“(\w+)” learned in \d+\sms from (\d+) images, false alarms \d+\.\d\s% → \d+\.\d\s%"

ASKED = "const stale = document.getElementById('stale'); if (!stale.hidden) stale.click()"
SHOWN = """Object.fromEntries([...document.querySelectorAll("form[data-group^=g]")]
  .map((form) => [form.dataset.group, form.elements.members.value]))"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture
def context(chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    yield context
    context.close()


@pytest.fixture
def stream(service, digits):
    """Known digits and then three new ones come in; gives of each kept image which digit it is."""
    every, truth = load_named("digits").train, {}
    service.observe(digits[1].inputs[:100])
    for digit in NAMES:
        before = service.bench.inbox.last
        service.observe(every.only((digit,)).inputs[:40])
        truth |= dict.fromkeys(range(before + 1, service.bench.inbox.last + 1), digit)
    until(lambda: len(service.bench.groups.found) >= 3 and service.is_grouped)
    return truth


@pytest.fixture
def page(client, context, stream):
    page = watched(context)
    yield page
    assert page.faults == []
    assert all(url.startswith(str(client.base_url)) for url in page.asked)


def _said(page, pattern):
    """Wait for a message, and give what stands in it."""
    found = until(lambda: re.search(pattern, page.locator("#message").inner_text()))
    return found.groups()


def _shown_as_they_are(page, service):
    """Wait until the page shows the groups as they stand, asking for what came since as a person would."""

    def equal():
        page.evaluate(ASKED)
        shown = page.evaluate(SHOWN)
        return shown == {each.id: ranges(each.members) for each in service.bench.groups.found}

    until(lambda: service.is_grouped and equal())


def test_three_new_classes_are_named_by_keyboard_learned_and_one_is_taken_back(page, client, service, stream):
    page.goto(f"{client.base_url}/page/new")
    until(lambda: page.locator("#connection").inner_text() == "live")
    first = page.locator("form[data-group] input[name=name]").first
    first.focus()
    for _ in range(3):
        until(lambda: page.evaluate("document.activeElement.name") == "name")
        _shown_as_they_are(page, service)
        first.focus()
        group = page.evaluate("document.activeElement.closest('form').dataset.group")
        assert group.startswith("g")
        form = page.locator(f"#group-{group}")
        shown = numbers_of(form.locator("input[name=members]").get_attribute("value"))
        size = int(form.get_attribute("data-size"))
        assert len(shown) == size
        digit, _ = Counter(stream[number] for number in shown).most_common(1)[0]
        page.keyboard.type(NAMES[digit])
        page.keyboard.press("Enter")
        assert _said(page, LEARNED.replace(r"(\w+)", f"({NAMES[digit]})")) == (NAMES[digit], str(size))
        assert list(service.bench.changes[-1].members) == shown
        until(lambda group=group: page.locator(f"#group-{group}").count() == 0)
    fresh = load_named("digits").test
    for digit, name in NAMES.items():
        verdicts = [each.verdict for each in service.judge(fresh.only((digit,)).inputs)]
        assert Counter(verdicts).most_common(1)[0][0] == name
    last = service.snapshot.names[-1]
    page.keyboard.press("Control+z")
    _said(page, r"(Taken back)")
    assert last not in service.snapshot.names
    assert len(service.snapshot.names) == 6
    until(lambda: page.locator("form[data-group]").first.get_attribute("data-group") != "rest")


def test_pictures_are_selected_by_click_shift_click_and_arrow_keys(page, client, service):
    page.goto(f"{client.base_url}/page/new")
    form = page.locator("form[data-group]").first
    checked, learn = form.locator(".tile input:checked"), form.locator("button.primary")
    tiles = form.locator(".tile label")
    tiles.nth(1).click()
    tiles.nth(4).click(modifiers=["Shift"])
    assert checked.count() == 4
    assert learn.inner_text() == "Learn 4 selected"
    tiles.nth(2).click()
    assert checked.count() == 3
    page.keyboard.press("Escape")
    assert checked.count() == 0
    page.keyboard.press("Home")
    for key in (*4 * ["Shift+ArrowRight"], "ArrowRight", "Space"):
        page.keyboard.press(key)
    assert checked.count() == 6
    chosen = [int(each.get_attribute("value")) for each in checked.all()]
    form.locator("input[name=name]").fill("cow")
    page.keyboard.press("Enter")
    assert _said(page, LEARNED) == ("cow", "6")
    assert sorted(service.bench.changes[-1].members) == sorted(chosen)


def test_each_group_is_one_tab_stop_for_its_pictures_and_tab_goes_in_reading_order(page, client):
    page.goto(f"{client.base_url}/page/new")
    page.locator("form[data-group] input[name=name]").first.focus()
    seen = []
    for _ in range(6):
        seen.append(
            page.evaluate("(e => e.name == 'act' ? e.value : e.name ?? e.tagName)(document.activeElement)")
        )
        page.keyboard.press("Tab")
    assert seen == ["name", "learn", "not-novel", "rubbish", "SUMMARY", "images"]


def test_why_shows_known_examples_beside_the_image_and_escape_closes_it(page, client):
    page.goto(f"{client.base_url}/page/new")
    page.locator(".tile input").first.focus()
    page.keyboard.press("w")
    page.wait_for_selector("#why .compare img")
    assert page.locator("#why .compare figure").count() == 7
    drawn = "[...document.querySelectorAll('#why img')].every(i => i.complete && i.naturalWidth)"
    until(lambda: page.evaluate(drawn))
    page.keyboard.press("Escape")
    until(lambda: page.locator("#why").inner_html() == "")


def test_not_novel_and_rubbish_are_said_of_a_selection_and_can_be_undone(page, client, service):
    page.goto(f"{client.base_url}/page/new")
    for choice, kind in (("Not novel", "not-novel"), ("Rubbish", "dismissed")):
        form = page.locator("form[data-group]").first
        form.locator(".tile label").nth(0).click()
        form.get_by_role("button", name=choice).click()
        until(lambda kind=kind: service.bench.changes and service.bench.changes[-1].kind == kind)
        _said(page, r"(false alarms)")
        page.get_by_role("button", name="Undo").click()
        _said(page, r"(Taken back)")
    assert not any(change.counts and change.images for change in service.bench.changes)


def test_a_name_that_is_markup_stays_text(page, client, service):
    page.goto(f"{client.base_url}/page/new")
    page.locator("form[data-group] input[name=name]").first.fill("<script>alert(1)</script>")
    page.keyboard.press("Enter")
    _said(page, r"“(<script>alert\(1\)</script>)” learned")
    for view, _ in VIEWS.values():
        page.goto(f"{client.base_url}{view}")
        assert page.evaluate("document.querySelectorAll('script:not([src])').length") == 0
    page.goto(f"{client.base_url}/page/classes")
    assert page.get_by_role("heading", name="<script>alert(1)</script>").count() == 1


def test_what_comes_in_is_on_the_live_view_without_a_reload_and_can_be_paused(page, client, service, digits):
    page.goto(f"{client.base_url}/")
    until(lambda: page.locator("#connection").inner_text() == "live")
    first = page.locator(".strip img").first
    before = first.get_attribute("src")
    service.observe(digits[1].inputs[100:104])
    until(lambda: first.get_attribute("src") != before)
    assert "of the last" in page.locator(".status").inner_text()
    page.get_by_role("button", name="Pause").click()
    before = first.get_attribute("src")
    service.observe(digits[1].inputs[104:108])
    page.wait_for_timeout(1500)
    assert first.get_attribute("src") == before
    page.get_by_role("button", name="Pause").click()
    until(lambda: first.get_attribute("src") != before)


def test_long_work_shows_its_progress_and_can_be_cancelled(page, client, service, monkeypatch):
    def slowly(*_):
        for step in range(10**6):
            time.sleep(0.02)
            yield Progress(min(40, step), 100)

    monkeypatch.setattr(service.bench, "naming", slowly)
    page.goto(f"{client.base_url}/page/new")
    page.locator("form[data-group] input[name=name]").first.fill("cow")
    page.keyboard.press("Enter")
    until(
        lambda: page.locator("progress").count() and page.locator("progress").get_attribute("value") == "40"
    )
    page.get_by_role("button", name="Cancel").click()
    _said(page, r"(cancelled)")
    assert "cow" not in service.snapshot.names


def test_classes_history_and_quality_follow_a_change(page, client, service):
    base = client.base_url
    group = service.bench.groups.found[0].id
    service.name_group(group, "cow", "Ada")[1].result()
    page.goto(f"{base}/page/classes")
    page.locator("summary[aria-label='Change cow']").click()
    page.get_by_role("region", name="cow").locator("input[name=to]").fill("calf")
    page.keyboard.press("Enter")
    _said(page, r"(renamed)")
    until(lambda: page.get_by_role("heading", name="calf").count() == 1)
    page.goto(f"{base}/page/history")
    page.select_option("#old", "1")
    page.select_option("#new", "3")
    page.get_by_role("button", name="Compare").click()
    until(lambda: "+ calf" in page.locator("#difference").inner_text())
    assert "Ada" in page.locator(".changes").first.inner_text()
    page.get_by_role("button", name="Roll back to version 1").click()
    until(lambda: service.snapshot.version == 1)
    page.goto(f"{base}/page/quality")
    page.locator("#accept").fill("90")
    page.keyboard.press("Enter")
    _said(page, r"(accepts|Accepts)")
    until(lambda: "10.0" in page.locator(".scale").inner_text())


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
def test_every_view_fits_is_readable_and_every_control_has_a_name(
    chromium, client, stream, service, width, scheme
):
    service.not_novel(service.bench.groups.found[0].id, "Ada")[1].result()
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = watched(context)
    for view in (*(where for where, _ in VIEWS.values()), "/login"):
        page.goto(f"{client.base_url}{view}")
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert problems_for_readers(page) == [], view
    assert page.faults == []
    context.close()


def test_what_a_person_selected_and_typed_outlives_what_comes_in(page, client, service, digits):
    page.goto(f"{client.base_url}/page/new")
    until(lambda: page.locator("#connection").inner_text() == "live")
    form = page.locator("form[data-group]").first
    form.locator(".tile label").nth(2).click()
    form.locator("input[name=name]").fill("co")
    service.observe(digits[2].inputs[:10])
    page.wait_for_selector("#stale:not([hidden])")
    page.locator("#stale").click()
    page.wait_for_selector("#stale", state="hidden")
    assert page.locator(".tile input:checked").count() == 1
    assert form.locator("input[name=name]").input_value() == "co"


def test_what_is_typed_just_after_groups_were_fetched_anew_stays(page, client, service):
    page.goto(f"{client.base_url}/page/new")
    name = page.locator("form[data-group] input[name=name]").first
    name.fill("co")
    page.evaluate("""() => {
      const input = () => document.querySelector("form[data-group] input[name=name]");
      const type = () => { input().value += "w"; document.body.dataset.typed = "yes"; };
      document.addEventListener("htmx:afterSwap", () => setTimeout(type, 1), { once: true });
      htmx.trigger("#groups", "refresh");
    }""")
    page.wait_for_selector("body[data-typed]")
    page.wait_for_timeout(200)
    assert name.input_value() == "cow"


def test_the_service_gone_is_said_and_nothing_is_lost(chromium, service, stream):
    context = chromium.new_context()
    page = context.new_page()
    with asked(create_app(service)) as client:
        page.goto(f"{client.base_url}/page/new")
        page.locator("form[data-group] input[name=name]").first.fill("cow")
    page.keyboard.press("Enter")
    _said(page, r"(cannot be reached; nothing was changed)")
    assert page.locator("form[data-group] input[name=name]").first.input_value() == "cow"
    assert page.locator("#connection").inner_text() == "reconnecting"
    context.close()
