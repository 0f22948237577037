"""Everything that people send is judged alike, and what cannot be is refused by a problem document."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from shels.service.app import create_app
from shels.service.limits import Limits

from .conftest import NPY, asked, npy


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def refused(answer, status, *words):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["error"] == body["detail"]
    for word in words:
        assert word in body["error"]
    return body


def test_every_form_of_sending_gives_the_verdicts_of_the_model_itself(client, service, known):
    some = known[:6]
    expected = service.learner.judge(torch.from_numpy(some)[:, None])
    names = [str(service.learner.classes[place]) for place in expected.predicted.tolist()]
    answers = [
        client.post("/judge", content=npy(some), headers=NPY),
        client.post("/judge", content=npz(x=some), headers={"Content-Type": "application/x-npz"}),
        client.post("/judge", json={"inputs": some.tolist()}),
        client.post("/judge", files=[("files", (f"{at}.png", png(each))) for at, each in enumerate(some)]),
        client.post("/judge", files={"files": ("x.npz", npz(x=some))}),
    ]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        verdicts = answer.json()["verdicts"]
        assert [each["predicted"] for each in verdicts] == names
        assert [each["novel"] for each in verdicts] == expected.novel.tolist()
        assert [each["p_value"] for each in verdicts] == pytest.approx(expected.p_value.tolist(), abs=1e-3)
        assert answer.json()["observed"] is None
    one = client.post("/judge", content=png(some[0]), headers={"Content-Type": "image/png"}).json()
    assert [each["predicted"] for each in one["verdicts"]] == names[:1]


def test_what_cannot_be_judged_is_named(client):
    text = {"files": ("notes.txt", b"hello")}
    assert refused(client.post("/judge", files=text), 422, "notes.txt")["field"] == "files"
    vectors = {"inputs": [[1, 2, 3]]}
    assert refused(client.post("/judge", json=vectors), 422, "got vectors of 3 values")["field"] == "body"


def test_verdicts_are_written_as_the_general_writer_of_json_would(client, service, known):
    name = 'a "class" \\ of é\u2028'
    service.rename_class(service.snapshot.names[0], name, "Ada")[1].result()
    answer = client.post("/judge", content=npy(known), headers=NPY)
    judged = service.judge(torch.from_numpy(known)[:, None])
    whole = {"version": 2, "verdicts": [vars(each) for each in judged], "observed": None}
    assert name in {each.verdict for each in judged}
    assert answer.text == json.dumps(whole)


def test_the_open_inference_protocol_answers_by_version(client, service, known):
    name = client.app.state.name
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get(f"/v2/models/{name}").json()["versions"] == ["1"]
    assert client.get(f"/v2/models/{name}/versions/1/ready").json() == {"ready": True}
    tensor = {"name": "x", "shape": [2, 8, 8], "datatype": "UINT8", "data": known[:2].ravel().tolist()}
    service.set_rule(0.5, "ada")[1].result()
    for version, expected in (("", "2"), ("/versions/1", "1"), ("/versions/2", "2")):
        answer = client.post(f"/v2/models/{name}{version}/infer", json={"id": "7", "inputs": [tensor]}).json()
        assert (answer["id"], answer["model_version"]) == ("7", expected)
        assert {each["name"] for each in answer["outputs"]} >= {"verdict", "p_value"}
        assert all(each["shape"] == [2] == [len(each["data"])] for each in answer["outputs"])
    only = client.post(
        f"/v2/models/{name}/infer", json={"inputs": [tensor], "outputs": [{"name": "verdict"}]}
    ).json()
    assert [each["name"] for each in only["outputs"]] == ["verdict"]
    refused(client.get("/v2/models/other"), 404, "other")
    refused(client.get(f"/v2/models/{name}/versions/9"), 404, "version")
    wrong = {**tensor, "datatype": "BYTES"}
    refused(client.post(f"/v2/models/{name}/infer", json={"inputs": [wrong]}), 422, "datatype")


def test_observed_samples_are_counted_once_by_their_key(client, novel):
    headers = {**NPY, "Idempotency-Key": "camera-1"}
    first = client.post("/observe", content=npy(novel[:20]), headers=headers).json()
    again = client.post("/judge?observe=true", content=npy(novel[:20]), headers=headers).json()
    assert (first["observed"]["repeated"], again["observed"]["repeated"]) == (False, True)
    assert again["observed"]["event"] == first["observed"]["event"]
    live = client.get("/live").json()
    assert live["observed"] == 20
    assert live["waiting"] == first["observed"]["novel"]
    other = client.post("/observe", content=npy(novel[20:40]), headers=headers)
    refused(other, 422, "new key")
    assert other.json()["field"] == "Idempotency-Key"


def test_what_is_no_sample_of_the_model_is_refused_with_what_to_do(client, known):
    refused(client.post("/judge", content=b"a,b", headers={"Content-Type": "text/csv"}), 415, "text/csv")
    refused(client.post("/judge", content=b"", headers=NPY), 422, "empty")
    refused(client.post("/judge", json={"inputs": [[1, 2], [3]]}), 422, "inputs")
    refused(client.post("/judge", json={"rows": []}), 422, "inputs")
    refused(client.post("/judge", json={"inputs": [[1.0, 2.0]]}), 422, "8x8")
    refused(client.post("/judge", content=npy(known[:2]) + b"more", headers=NPY), 422, "size")
    refused(client.post("/judge", files={"files": ("a.png", b"not an image")}), 422, "a.png")
    refused(client.post("/judge", files={"files": ("a.npz", b"PK\x03\x04broken")}), 422, "npz")
    refused(client.post("/judge", data={"a": "b"}, files={}), 415)
    refused(
        client.post("/judge", content=b'{"inputs": [[NaN]]}', headers={"Content-Type": "application/json"}),
        422,
    )
    refused(client.post("/judge", content=b"[" * 5000, headers={"Content-Type": "application/json"}), 422)
    refused(client.get("/judge"), 405)
    refused(client.get("/nothing"), 404, "/docs")


def test_objects_in_arrays_are_never_unpickled(client):
    evil = np.array([{"a": 1}], dtype=object)
    file = io.BytesIO()
    np.save(file, evil, allow_pickle=True)
    refused(client.post("/judge", content=file.getvalue(), headers=NPY), 422, "numbers")
    refused(
        client.post("/judge", content=npz(x=evil), headers={"Content-Type": "application/x-npz"}),
        422,
        "numbers",
    )


@pytest.fixture
def small(service):
    limits = Limits(body=200_000, samples=10, pixels=1_000_000, all_pixels=1_500_000)
    with asked(create_app(service, limits=limits)) as client:
        yield client


def test_what_is_too_large_is_refused_before_it_is_unpacked(small, known):
    refused(small.post("/judge", content=npy(known[:11]), headers=NPY), 413, "10 are the most")
    refused(small.post("/judge", content=bytes(200_001), headers=NPY), 413, "200000")

    def parts():
        for _ in range(30):
            yield bytes(10_000)

    refused(small.post("/judge", content=parts(), headers=NPY), 413)
    bomb = npz(x=np.zeros((1, 4000, 4000), np.uint8))
    assert len(bomb) < 100_000
    refused(small.post("/judge", content=bomb, headers={"Content-Type": "application/zip"}), 413, "unpack")
    large = png(np.zeros((2000, 2000), np.uint8))
    refused(small.post("/judge", files={"files": ("large.png", large)}), 413, "pixels")
    half = png(np.zeros((900, 900), np.uint8))
    refused(
        small.post("/judge", files=[("files", ("a.png", half)), ("files", ("b.png", half))]), 413, "together"
    )


def test_a_header_that_lies_about_a_huge_image_costs_nothing(small):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100)))
    refused(small.post("/judge", content=bomb, headers={"Content-Type": "image/png"}), 413, "pixels")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        shape = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9, 999999999), }\n"
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(shape)) + shape)
    refused(
        small.post("/judge", content=file.getvalue(), headers={"Content-Type": "application/x-npz"}),
        422,
        "size",
    )


def test_single_requests_at_once_are_judged_as_they_are_alone(client, known):
    from concurrent.futures import ThreadPoolExecutor

    def ask(row):
        return client.post("/judge", content=npy(known[row : row + 1]), headers=NPY).json()["verdicts"][0]

    alone = [ask(row) for row in range(24)]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(ask, range(24)))
    assert [each["verdict"] for each in together] == [each["verdict"] for each in alone]


def test_more_requests_than_may_wait_are_asked_to_come_again(service, known):
    limits = Limits(judging=0)
    with asked(create_app(service, limits=limits)) as client:
        answer = client.post("/judge", content=npy(known[:1]), headers=NPY)
        refused(answer, 429, "try again")
        assert answer.headers["retry-after"] == "1"
        refused(client.post("/observe", content=npy(known[:1]), headers=NPY), 429)
