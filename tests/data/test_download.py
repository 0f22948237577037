import hashlib
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shels.data import sources
from shels.data.download import download
from shels.data.sources import NAMED, OfficialFile
from shels.errors import DataError, MissingDataError, MissingExtraError, SettingsError

CONTENT = bytes(range(256)) * 20


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        requests = []  # noqa: RUF012

        def do_GET(self):
            self.requests.append(self.path)
            if self.path.endswith("missing"):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT) * (2 if self.path.endswith("cut") else 1)))
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def serve(server, monkeypatch):
    """Make mnist consist of these served files; return the paths that were asked for."""

    def serve(*names, md5=None, port=None):
        md5 = md5 or hashlib.md5(CONTENT).hexdigest()
        base = f"http://127.0.0.1:{port or server.server_port}/"
        files = tuple(OfficialFile(name, base + name, md5) for name in names)
        monkeypatch.setitem(sources.NAMED, "mnist", replace(NAMED["mnist"], files=files))
        return server.RequestHandlerClass.requests

    return serve


def test_files_come_into_a_folder_of_the_sets_name(serve, tmp_path):
    serve("a.gz", "b.gz")
    folder = download("mnist", tmp_path)
    assert folder == tmp_path / "mnist"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"a.gz": CONTENT, "b.gz": CONTENT}


def test_a_file_that_is_there_and_right_is_not_fetched_again_but_a_wrong_one_is(serve, tmp_path):
    requests = serve("a.gz", "b.gz")
    download("mnist", tmp_path)
    (tmp_path / "mnist" / "b.gz").write_bytes(b"damaged")
    requests.clear()
    download("mnist", tmp_path)
    assert requests == ["/b.gz"]
    assert (tmp_path / "mnist" / "b.gz").read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_nothing_is_left(serve, tmp_path):
    serve("a.gz", md5="0" * 32)
    with pytest.raises(DataError, match=r"a\.gz.*checksum.*instead of 0000"):
        download("mnist", tmp_path)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_a_file_that_the_server_lacks_is_named_with_its_url_and_a_way_by_hand(serve, tmp_path):
    serve("missing")
    with pytest.raises(MissingDataError, match=r"http://127.*missing.*404.*by hand.*put it at"):
        download("mnist", tmp_path)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_a_transfer_that_breaks_off_leaves_nothing(serve, tmp_path):
    serve("cut")
    with pytest.raises(DataError, match="cut"):
        download("mnist", tmp_path)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_an_unreachable_host_is_named(serve, tmp_path):
    serve("a.gz", port=1)
    with pytest.raises(MissingDataError, match=r"http://127\.0\.0\.1:1/a\.gz could not be downloaded"):
        download("mnist", tmp_path)


def test_progress_is_reported_up_to_all_bytes(serve, tmp_path):
    serve("a.gz")
    seen = []
    download("mnist", tmp_path, lambda *report: seen.append(report))
    assert seen[-1] == ("a.gz", len(CONTENT), len(CONTENT))
    assert [so_far for _, so_far, _ in seen] == sorted(so_far for _, so_far, _ in seen)


def test_a_missing_pooch_is_explained(serve, tmp_path, monkeypatch):
    serve("a.gz")
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"shels\[download\]"):
        download("mnist", tmp_path)


def test_a_folder_that_cannot_be_made_is_named(serve, tmp_path):
    serve("a.gz")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match="cannot be made"):
        download("mnist", tmp_path / "file")


def test_the_digits_need_no_download_and_an_unknown_set_is_refused(tmp_path):
    assert download("digits", tmp_path) == tmp_path / "digits"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SettingsError, match="did you mean 'mnist'"):
        download("minst", tmp_path)


def test_every_official_file_has_a_url_and_a_checksum():
    for each in NAMED.values():
        for file in each.files:
            assert file.url.startswith("http")
            assert file.url.endswith("/" + file.name)
            assert len(bytes.fromhex(file.md5)) == 16
