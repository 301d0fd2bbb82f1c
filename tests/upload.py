"""Uploads by foreign clients: EST with curl and openssl, tus with tuspy, receipts with openssl."""

import base64
import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import ssl

from openapi_spec_validator import OpenAPIV31SpecValidator
from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError

from tests.device import FILES, TUS, Device
from tests.harness import CORDON, Camera, Site, contains, cordon_json, equal, jpeg, request, tls_context, wait_for
from tests.harness import run as run_command

# Pieces in which the foreign client uploads; a block has some.
CHUNK = 64 * 1024


def run(suite):
    site = Site(suite).start()
    people = site.people()
    device = Device(site, "camera-18")
    os.environ["REQUESTS_CA_BUNDLE"] = str(device.root)

    enrolment(suite, site, device)
    blocks = uploads(suite, device, people)
    cuts(suite, device)
    refusals(suite, site, device, blocks, people)
    strangers(suite, site, device, people)
    agent(suite, site, people)
    revocation(suite, site, device, people)
    with suite.case("the description of the people's interface is valid OpenAPI"):
        description = people["reviewer-3"].get("/api/v1/openapi.json")
        OpenAPIV31SpecValidator(description).validate()
        equal(description, json.loads(run_command(CORDON, "openapi").stdout), "description of the program")
    with suite.case("counters and search of the index fit its rows, and a difference is named"):
        found = cordon_json("site", "check", "--data", site.data)
        equal((found["fits"], found["differences"]), (True, []))
        assert found["at_rest"]["state"] in ("encrypted", "plain", "unknown"), found
        index = sqlite3.connect(site.data / "centre" / "centre.sqlite", timeout=10)
        with index:
            index.execute("UPDATE cameras SET accepted = accepted + 1 WHERE device = 'camera-18'")
        found = cordon_json("site", "check", "--data", site.data, code=1)["differences"]
        equal(found, [{"what": "blocks of a camera", "at": ["camera-18"], "count": 1}])
        with index:
            index.execute("UPDATE cameras SET accepted = accepted - 1 WHERE device = 'camera-18'")
        index.close()
    with suite.case("the audit log and all journals hold"):
        site.verify_audit()
    with suite.case("the site stops"):
        site.stop()


def enrolment(suite, site, device):
    with suite.case("a wrong code enrols nobody"):
        equal(device.enrol("0000-0000-0000-0000"), 401, "status")
    with suite.case("curl and openssl enrol with the one-time code"):
        equal(device.enrol(), 200, "status")
        equal(Device.subject(device.cert.read_text()).strip().replace(" ", "").split(",")[-1], "CN=camera-18")
    with suite.case("the code is good for one key: asking again gives the same, another key nothing"):
        first = device.cert.read_text()
        equal(device.enrol(), 200, "status")
        equal(device.cert.read_text(), first)
        key, device.key = device.key, device.folder / "other.key"
        run_command("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", device.key)
        equal(device.enrol(), 401, "status")
        device.key = key


def client(device):
    address = f"https://localhost:{device.site.intake}{FILES}"
    return TusClient(address, client_cert=(str(device.cert), str(device.key)))


def location(url):
    return url[url.index(FILES) :]


def uploads(suite, device, people):
    block, sealed = None, None
    with suite.case("tuspy uploads a sealed block in parts with checksums"):
        block, sealed = device.seal(jpeg(b"first", 300_000), plate="TUS 001")
        uploader = client(device).uploader(str(block), chunk_size=CHUNK, upload_checksum=True)
        uploader.upload()
        device.first = location(uploader.url)
    with suite.case("tuspy finds the archived upload complete, and uploads a block again that is archived"):
        again = client(device).uploader(str(block), url=uploader.url, chunk_size=CHUNK)
        equal(again.get_offset(), block.stat().st_size, "offset of the archived upload")
        again.upload()
        equal(again.offset, block.stat().st_size, "offset after nothing was sent")
        digest = hashlib.sha256(block.read_bytes()).hexdigest()
        twice = client(device).uploader(str(block), chunk_size=CHUNK, metadata={"sha256": digest})
        twice.upload()
        receipts = [device.receipt(at) for at in (location(twice.url), device.first)]
        equal([answer.status for answer in receipts], [200, 200], "answers")
        equal(receipts[0].body, receipts[1].body, "receipt of the same block")
    with suite.case("openssl verifies the receipt, which names the block"):
        answer = device.receipt(device.first)
        equal(answer.status, 200, answer.text)
        receipt = device.open_receipt(answer.body)
        equal(receipt["verdict"], "accepted")
        equal(receipt["block_sha256"], sealed["block_sha256"])
        equal(receipt["manifest_sha256"], sealed["manifest_sha256"])
        equal((receipt["device"], receipt["sequence"]), ("camera-18", 1))
        equal(receipt["block_sha256"], hashlib.sha256(block.read_bytes()).hexdigest())
        device.receipt_bytes = answer.body
    with suite.case("the block is in the list"):
        rows = people["reviewer-3"].get("/api/v1/violations?plate=TUS")["rows"]
        equal([row["plate"] for row in rows], ["TUS 001"])
    with suite.case("the same bytes again get the same receipt, and are there once"):
        again = device.receipt(device.upload(block.read_bytes()))
        equal(again.body, device.receipt_bytes)
        rows = people["reviewer-3"].get("/api/v1/violations?plate=TUS")["rows"]
        equal(len(rows), 1)
    with suite.case("an announced block that is known is not uploaded at all"):
        encoded = base64.b64encode(sealed["block_sha256"].encode()).decode()
        answer = device.create(block.stat().st_size, f"sha256 {encoded}")
        equal(answer.status, 200)
        equal(device.request("GET", answer.headers["Cordon-Receipt"]).body, device.receipt_bytes)
    return block, sealed


def send_half(device, where, block, extra=""):
    """Sends half of a PATCH and cuts the connection."""
    half = len(block) // 2
    head = (
        f"PATCH {where} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
        f"Content-Type: application/offset+octet-stream\r\nContent-Length: {len(block)}\r\n{extra}\r\n"
    )
    with socket.create_connection(("localhost", device.site.intake)) as plain:
        with tls_context(device.root, device).wrap_socket(plain, server_hostname="localhost") as stream:
            stream.sendall(head.encode() + block[:half])
            # Closing at once would reset the connection, and with it drop what is still on its way.
            stream.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while stream.recv(4096):
                    pass
    return half


def offset(device, where):
    answer = device.request("HEAD", where)
    equal(answer.status, 200, f"status of HEAD {where}")
    return int(answer.headers["Upload-Offset"])


def cuts(suite, device):
    block, _ = device.seal(jpeg(b"second", 1_000_000), plate="TUS 002")
    content = block.read_bytes()
    with suite.case("after a cut tuspy goes on where the bytes ended"):
        where = device.create(len(content)).headers["Location"]
        half = send_half(device, where, content)
        # No more than one request of our own agent may be lost.
        least = half - 256 * 1024
        wait_for(lambda: offset(device, where) >= least, "the part before the cut")
        kept = offset(device, where)
        assert kept <= half, (kept, half)
        url = f"https://localhost:{device.site.intake}{where}"
        # The broken connection may hold the upload for another moment, which is answered with 423.
        again = {"retries": 5, "retry_delay": 1}
        uploader = client(device).uploader(str(block), url=url, chunk_size=CHUNK, upload_checksum=True, **again)
        assert kept <= uploader.offset <= half, (kept, uploader.offset, half)
        uploader.upload()
        receipt = device.open_receipt(device.receipt(where).body)
        equal((receipt["verdict"], receipt["sequence"]), ("accepted", 2))
    with suite.case("a part with a checksum is taken whole or not at all"):
        where = device.create(len(content)).headers["Location"]
        sha256 = base64.b64encode(hashlib.sha256(content).digest()).decode()
        send_half(device, where, content, f"Upload-Checksum: sha256 {sha256}\r\n")
        equal(offset(device, where), 0, "offset after the cut")
        wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
        answer = device.append(where, 0, content, {"Upload-Checksum": f"sha256 {wrong}"})
        equal((answer.status, answer.json()["code"]), (460, "checksum-mismatch"))
        equal(offset(device, where), 0, "offset after the wrong checksum")
    with suite.case("an upload can be given up"):
        equal(device.request("DELETE", where).status, 204)
        equal(device.request("HEAD", where).status, 404)


def refusals(suite, site, device, first, people):
    """What is not acceptable is kept in quarantine, each with its reason."""
    block, _ = device.seal(jpeg(b"third", 100_000), plate="TUS 003")
    good = block.read_bytes()

    def flipped(position):
        changed = bytearray(good)
        changed[position] ^= 1
        return bytes(changed)

    def quarantined(title, content, reason, sender=device):
        with suite.case(f"{title}: quarantined as {reason}"):
            receipt = sender.verdict(content)
            equal((receipt["verdict"], receipt["reason"]), ("quarantined", reason))
            kept = site.data / "centre" / "quarantine"
            assert any(path.stat().st_size == len(content) for path in kept.rglob("*") if path.is_file())
            reasons.append(reason)

    reasons = []
    quarantined("a flipped byte in the picture", flipped(len(good) // 2), "chunk-authentication")
    quarantined("a flipped byte in the head", flipped(3), "not-a-block")
    quarantined("a truncated block", good[:-1], "truncated")
    quarantined("something else", b"GIF89a" + good, "not-a-block")
    other = Device(site, "camera-19", clearance=1)
    other.enrol()
    quarantined("another camera's block", good, "other-sender", other)
    quarantined("a number used twice", device.seal(jpeg(b"fork"), sequence=1)[0].read_bytes(), "sequence-fork")
    future = device.seal(jpeg(b"future"), sequence=90, captured_at="2099-01-01T00:00:00Z")[0]
    quarantined("a picture from the future", future.read_bytes(), "captured-after-sealing")
    old = device.seal(jpeg(b"old"), sequence=91, captured_at="2019-01-01T00:00:00Z")[0]
    quarantined("a picture that is too old", old.read_bytes(), "too-old")
    secret = other.seal(jpeg(b"secret"), classification=2)[0]
    quarantined("a level above the camera's", secret.read_bytes(), "above-clearance", other)
    with suite.case("the good block is accepted from its own camera all the same"):
        equal(device.verdict(good)["verdict"], "accepted")
        answer = other.receipt(other.upload(good))
        equal((answer.status, answer.json()["code"]), (422, "other-sender"))
    with suite.case("bytes that are not those announced are discarded, not judged"):
        wrong = base64.b64encode(hashlib.sha256(b"x").hexdigest().encode()).decode()
        where = device.create(len(good), f"sha256 {wrong}").headers["Location"]
        device.append(where, 0, good)
        answer = device.receipt(where)
        equal((answer.status, answer.json()["code"]), (422, "hash-mismatch"))
    with suite.case("every quarantine is an audit event with its reason"):
        shown = cordon_json("audit", "show", site.data / "audit/log", "--last", 500)
        text = str(shown)
        for reason in set(reasons):
            contains(text, reason)
    with suite.case("nothing refused is listed, and the camera's page counts it"):
        plates = [row["plate"] for row in people["reviewer-3"].get("/api/v1/violations?device=camera-18")["rows"]]
        equal(sorted(plates), ["TUS 001", "TUS 002", "TUS 003"])
        cameras = {row["device"]: row for row in people["reviewer-3"].get("/api/v1/cameras")}
        equal(cameras["camera-18"]["quarantined"], 7)
        equal(cameras["camera-18"]["gaps"], [])
    with suite.case("wrong uses of the protocol are refused"):
        where = device.create(10).headers["Location"]
        for answer, status, code in (
            (device.append(where, 5, b"12345"), 409, "wrong-offset"),
            (device.append(where, 0, b"12345678901"), 413, "too-long"),
            (device.append(where, 0, b"1", {"Content-Type": "text/plain"}), 415, "wrong-content-type"),
            (device.request("HEAD", where, None, {"Tus-Resumable": "0.2.2"}), 412, None),
            (device.create(2**63), 413, "too-large"),
            (other.append(where, 0, b"1"), 404, "not-found"),
            (device.request("GET", where), 405, "method-not-allowed"),
        ):
            equal(answer.status, status, f"status of {answer.text}")
            if code:
                equal(answer.json()["code"], code)
        device.request("DELETE", where)


def handshake_or_403(*arguments):
    """Makes the request, and takes a broken handshake for a refusal."""
    try:
        answer = request(*arguments)
    except (ssl.SSLError, ConnectionError) as error:
        return type(error).__name__
    equal(answer.status, 403, f"status of {answer.text[:300]}")
    return answer.text


def strangers(suite, site, device, people):
    with suite.case("the intake refuses a person's certificate"):
        person = people["reviewer-3"]
        handshake_or_403(site.intake, "OPTIONS", FILES, site.root, person, None, TUS)
        size = {**TUS, "Upload-Length": "10"}
        handshake_or_403(site.intake, "POST", FILES, site.root, person, None, size)
    with suite.case("the intake refuses who has no certificate"):
        handshake_or_403(site.intake, "POST", FILES, site.root, None, None, TUS)
    with suite.case("the portal and its interface refuse a camera's certificate"):
        for path in ("/", "/violations", "/cameras", "/audit", "/api/v1/violations", "/api/v1/cameras"):
            handshake_or_403(site.portal, "GET", path, site.root, device)
    with suite.case("a certificate of another authority is refused by all"):
        class Forged:
            cert, key = site.folder / "forged.pem", site.folder / "forged.key"

        run_command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
                    "-keyout", Forged.key, "-out", Forged.cert, "-subj", "/CN=camera-18")
        for port, path in ((site.intake, FILES), (site.portal, "/api/v1/violations")):
            handshake_or_403(port, "GET", path, site.root, Forged)


def agent(suite, site, people):
    with suite.case("cordon camera run enrols itself with its folder, and delivers"):
        camera = Camera(site, "camera-20").start()
        camera.drop("one", jpeg(b"by the agent", 50_000), plate="AGENT 1")
        camera.drain()
        assert not (camera.folder / "code").exists(), "the used code is still there"
        assert (camera.folder / "identity.pem").stat().st_mode & 0o777 == 0o600
        camera.stop()
        rows = people["reviewer-3"].get("/api/v1/violations?plate=AGENT")["rows"]
        equal([row["device"] for row in rows], ["camera-20"])
    with suite.case("the next start needs no code"):
        camera.start()
        camera.drop("two", jpeg(b"by the agent again", 50_000), plate="AGENT 2")
        camera.drain()
        camera.stop()
        equal(len(camera.receipts()), 2)
    with suite.case("the agent's receipts are openssl's as well"):
        device = Device.__new__(Device)
        device.folder, device.root = camera.folder, camera.folder / "root.pem"
        for file in camera.receipts():
            equal(device.open_receipt(file.read_bytes())["verdict"], "accepted")


def revocation(suite, site, device, people):
    with suite.case("a revoked camera is refused with the reason, on its open connection too"):
        connection = device.connection()
        connection.request("HEAD", f"{FILES}/none", headers=TUS)
        answer = connection.getresponse()
        answer.read()
        equal(answer.status, 404, "status before the revocation")
        site.ask("pki", "revoke", "--device", device.name, "--reason", "key-compromise")
        connection.request("POST", FILES, headers={**TUS, "Upload-Length": "10"})
        answer = connection.getresponse()
        contains(answer.read().decode(), "certificate-revoked")
        equal(answer.status, 403)
        connection.close()
    with suite.case("tuspy with the revoked certificate gets nothing"):
        try:
            client(device).uploader(str(device.cert), chunk_size=CHUNK).upload()
        except TusCommunicationError as error:
            contains(str(error), "403")
        else:
            raise AssertionError("the upload was taken")
    with suite.case("a revoked agent keeps its pictures"):
        camera = Camera(site, "camera-21").start()
        camera.drop("one", jpeg(b"before", 20_000), plate="KEPT 1")
        camera.drain()
        site.ask("pki", "revoke", "--device", "camera-21")
        camera.drop("two", jpeg(b"after", 20_000), plate="KEPT 2")
        wait_for(lambda: "revoked" in camera.log.read_text(), lambda: f"a refusal in {camera.log.read_text()}", 20)
        equal(len(camera.blocks()), 1, "blocks kept")
        camera.stop()
        rows = people["reviewer-3"].get("/api/v1/violations?plate=KEPT")["rows"]
        equal([row["plate"] for row in rows], ["KEPT 1"])
