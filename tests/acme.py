"""Servers of the network that enrol over ACME with certbot, and requests that no honest client sends."""

import base64
import concurrent.futures
import configparser
import hashlib
import json
import os
import socket
import sqlite3
import ssl
import sys
import threading
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.acme_client import Attacker, binding, b64, csr, der, encoded, jwk, jws, new_key
from tests.harness import ROOT, Site, contains, cordon, cordon_json, equal
from tests.harness import run as execute
from tests.requests import enrol, openssl

CERTBOT = Path(sys.executable).with_name("certbot")
# Moments at which the site is killed while it finalizes an order.
KILLS = 6
WEB, ALIAS = "web-1.police.example", "intranet.police.example"


class Certbot:
    """certbot with a folder of its own."""

    def __init__(self, site, folder):
        self.site, self.folder = site, folder
        self.log = ""

    def run(self, *arguments, code=0):
        folders = [part for name in ("config", "work", "logs") for part in (f"--{name}-dir", self.folder / name)]
        environment = {**os.environ, "REQUESTS_CA_BUNDLE": str(self.site.root)}
        done = execute(CERTBOT, *arguments, "--non-interactive", *folders, code=code, env=environment, timeout=90)
        self.log = done.stdout + done.stderr
        return self.log

    def enrol(self, settings, *options, code=0):
        return self.run("certonly", "--config", settings, "--standalone", "--agree-tos", "-m", "web@example.org", *options, code=code)

    def renew(self, code=0):
        return self.run("renew", "--force-renewal", "--no-random-sleep-on-renew", code=code)

    def live(self, name, file="fullchain.pem"):
        return self.folder / "config/live" / name / file


class Lego:
    """lego with a folder of its own: a client that nobody of certbot's makers has written."""

    def __init__(self, site, folder):
        self.site, self.folder = site, folder

    def run(self, command, name, binding, *options, code=0):
        kid, secret = binding
        line = ("lego", "--server", f"https://localhost:{self.site.enrolment}/acme/directory", "--path", self.folder, "--accept-tos",
                "--email", "web@example.org", "--eab", "--kid", kid, "--hmac", secret, "--http", "--domains", name, command, *options)
        done = execute(*line, code=code, env={**os.environ, "LEGO_CA_CERTIFICATES": str(self.site.root)}, timeout=90)
        return done.stdout + done.stderr

    def certificate(self, name):
        return self.folder / "certificates" / f"{name}.crt"


def events(site):
    shown = cordon_json("audit", "show", site.data / "audit" / "log", "--last", 1_000_000)
    return [entry["leaf"]["event"] for entry in shown["entries"]]


def rows(site, query):
    with sqlite3.connect(site.data / "registry.sqlite") as database:
        return database.execute(query).fetchall()


def serial(pem):
    """As the registry writes it."""
    return openssl("x509", "-in", pem, "-noout", "-serial").strip().split("=")[1].lower()


def run(suite):
    site = Site(suite).start()
    number = iter(range(1000))

    def invite(*names, renewals=5, code=0):
        out = site.folder / f"invitation-{next(number)}.ini"
        further = [part for name in names[1:] for part in ("--name", name)]
        done = cordon("registry", "invite", "--server", names[0], *further, "--renewals", renewals, "--out", out,
                      *site.arguments(), "--log", "off", code=code)
        return out if code == 0 else done.stderr

    def bound(settings):
        """Identifier and secret of an invitation's file."""
        parser = configparser.ConfigParser()
        parser.read_string("[x]\n" + settings.read_text())
        return parser["x"]["eab-kid"], parser["x"]["eab-hmac-key"]

    def account(*names, kind="ES256", renewals=5):
        one = Attacker(site, kind)
        equal(one.register(*bound(invite(*names, renewals=renewals))).status, 201)
        return one

    with suite.case("nothing speaks ACME and no server is invited unless the configuration says so; the switch is an event"):
        equal(Attacker(site).send("GET", f"https://localhost:{site.enrolment}/acme/directory").status, 404)
        contains(invite(WEB, code=1), "enrolment.acme")
        site.stop()
        site.config.write_text(site.config.read_text() + "\n[enrolment]\nacme = true\n")
        site.start()
        site.stop()
        changes = [event for event in events(site) if event["resource"] == "settings/enrolment.acme"]
        equal([event["details"]["new"] for event in changes], ["true"])
        site.start()

    certbot = Certbot(site, site.folder / "certbot")
    settings = invite(WEB, ALIAS, renewals=3)
    with suite.case("certbot enrols a server by its invitation, and OpenSSL takes the chain and both names"):
        equal(oct(settings.stat().st_mode & 0o777), "0o600")
        kid, secret = bound(settings)
        database = (site.data / "registry.sqlite").read_bytes() + (site.data / "registry.sqlite-wal").read_bytes()
        assert secret.encode() not in database
        certbot.enrol(settings)
        chain, key = certbot.live(WEB), certbot.live(WEB, "privkey.pem")
        shown = openssl("x509", "-in", chain, "-noout", "-text")
        for part in (f"DNS:{ALIAS}, DNS:{WEB}", f"CN = {WEB}", "TLS Web Server Authentication"):
            contains(shown, part)
        assert "Client Authentication" not in shown
        contains(openssl("verify", "-CAfile", site.root, "-untrusted", chain, "-purpose", "sslserver", "-verify_hostname", ALIAS, chain), "OK")
        equal(openssl("pkey", "-in", key, "-pubout"), openssl("x509", "-in", chain, "-noout", "-pubkey"))
        equal(rows(site, "SELECT count(*) FROM invitations WHERE sealed IS NOT NULL"), [(0,)])

    with suite.case("a TLS server goes by it, for clients that trust the root"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, key)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve():
                connection, _ = listener.accept()
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.sendall(b"served")
            thread = threading.Thread(target=serve)
            thread.start()
            client = ssl.create_default_context(cafile=str(site.root))
            with socket.create_connection(listener.getsockname()) as plain, client.wrap_socket(plain, server_hostname=ALIAS) as secure:
                equal(secure.recv(100), b"served")
            thread.join()

    with suite.case("certbot renews as often as was agreed to, and is told when that is used up"):
        first = serial(chain)
        certbot.renew()
        second = serial(chain)
        assert second != first
        certbot.renew()
        certbot.renew()
        contains(certbot.renew(code=1), "3 renewals were approved")
        site.stop()
        superseded = [event["details"]["serial"] for event in events(site) if event["action"] == "certificate.supersede"]
        site.start()
        equal(superseded, [first, second], "what is not good any more")

    with suite.case("certbot revokes by its account, and by the certificate's key; the lists have both"):
        last = serial(chain)
        certbot.run("revoke", "--cert-name", WEB, "--reason", "keycompromise", "--no-delete-after-revoke",
                    "--server", f"https://localhost:{site.enrolment}/acme/directory")
        reasons = dict(rows(site, "SELECT serial, reason FROM revoked"))
        equal(reasons[last], "key-compromise")
        other = Certbot(site, site.folder / "certbot-2")
        other.enrol(invite("db.police.example"))
        pem = other.live("db.police.example", "cert.pem")
        stranger = Certbot(site, site.folder / "certbot-3")
        stranger.run("revoke", "--cert-path", pem, "--key-path", other.live("db.police.example", "privkey.pem"), "--no-delete-after-revoke",
                     "--server", f"https://localhost:{site.enrolment}/acme/directory")
        reasons = dict(rows(site, "SELECT serial, reason FROM revoked"))
        equal(reasons[serial(pem)], "unspecified")

    with suite.case("certbot is told to renew what was revoked, without being forced"):
        revoked = serial(pem)
        other.run("renew", "--no-random-sleep-on-renew")
        assert serial(pem) != revoked

    with suite.case("lego enrols, renews and revokes as well"):
        lego, name = Lego(site, site.folder / "lego"), "lego.police.example"
        eab = bound(invite(name))
        lego.run("run", name, eab)
        pem = lego.certificate(name)
        first = serial(pem)
        contains(openssl("verify", "-CAfile", site.root, "-untrusted", pem, "-purpose", "sslserver", "-verify_hostname", name, pem), "OK")
        lego.run("renew", name, eab, "--days", "5000", "--no-random-sleep")
        assert serial(pem) != first
        lego.run("revoke", name, eab, "--keep")
        equal(rows(site, f"SELECT count(*) FROM revoked WHERE serial = '{serial(pem)}'"), [(1,)])
        contains(Lego(site, site.folder / "lego-2").run("run", name, eab, code=1), "wrong, used")

    with suite.case("certbot changes nothing for a stranger: no account without a binding, by a used one, or for other names"):
        stranger = Certbot(site, site.folder / "certbot-4")
        server = ("--server", f"https://localhost:{site.enrolment}/acme/directory", "--standalone", "--agree-tos", "-m", "x@example.org")
        contains(stranger.run("certonly", *server, "-d", WEB, code=1), "external account binding")
        contains(stranger.enrol(settings, code=1), "wrong, used")
        others = invite("mail.police.example")
        contains(stranger.enrol(others, "-d", WEB, "-d", "mail.police.example", code=1), "not every name")
        stranger.enrol(others)
        stranger.run("unregister", *server[:2])
        contains(stranger.enrol(others, code=1), "wrong, used")

    with suite.case("accounts have keys of four kinds, and no weak or strange one"):
        for kind in ("ES384", "EdDSA", "RS2048", "RS3072"):
            one = account(f"{kind.lower()}.example", kind=kind)
            assert isinstance(one.certificate(new_key(), f"{kind.lower()}.example"), str), kind
        for kind, problem in (("RS1024", "badPublicKey"), ("ES256K", "badPublicKey")):
            one = Attacker(site)
            one.key = ec.generate_private_key(ec.SECP256K1()) if kind == "ES256K" else rsa.generate_private_key(65537, 1024)
            answer = one.register(*bound(invite("weak.example")))
            assert answer.problem in ((400, problem), (400, "badSignatureAlgorithm")), answer.problem
        small = Attacker(site, "RS2048")
        small.key = rsa.generate_private_key(3, 2048)
        equal(small.register(*bound(invite("weak.example"))).problem, (400, "badPublicKey"))

    mine = account("a.example", "b.example")
    url = mine.base + "new-order"
    wanted = {"identifiers": [{"type": "dns", "value": "a.example"}]}

    with suite.case("requests that are signed otherwise than the standard has it are refused, each in its own words"):
        for changes, problem in (
            ({"alg": "none"}, (400, "badSignatureAlgorithm")), ({"alg": "HS256"}, (400, "badSignatureAlgorithm")),
            ({"alg": "RS256"}, (400, "badSignatureAlgorithm")), ({"alg": "ES384"}, (400, "badSignatureAlgorithm")),
            ({"url": mine.base + "new-account"}, (403, "unauthorized")), ({"url": url.replace("localhost", "127.0.0.1")}, (403, "unauthorized")),
            ({"jwk": jwk(mine.key)}, (400, "malformed")), ({"kid": None, "jwk": jwk(mine.key)}, (400, "malformed")),
            ({"crit": ["exp"]}, (400, "malformed")), ({"nonce": None}, (400, "malformed")), ({"nonce": b64(bytes(32))}, (400, "badNonce")),
            ({"kid": mine.kid + "0"}, (400, "accountDoesNotExist")), ({"kid": None}, (400, "malformed")),
        ):
            equal(mine.post(url, wanted, **changes).problem, problem, changes)
        # HMAC with the public key as its secret: what confuses a verifier that takes the algorithm from the message.
        header = mine.header(url, alg="HS256")
        forged = binding(b64(json.dumps(jwk(mine.key)).encode()), mine.kid, url, wanted) | {"protected": encoded(header)}
        equal(mine.deliver(url, forged).problem, (400, "badSignatureAlgorithm"))
        thief = jws(new_key(), mine.header(url), wanted)
        equal(mine.deliver(url, thief).problem, (403, "unauthorized"))
        for body in ("", "{}", "[]", "null", "\0", '{"protected":"","payload":"","signature":""}', "{" * 10_000):
            equal(mine.deliver(url, body).problem, (400, "malformed"), body[:20])
        equal(mine.deliver(url, "x" * 32_769).status, 413)
        equal(mine.deliver(url, jws(mine.key, mine.header(url), wanted), "application/json").status, 415)
        equal(mine.send("GET", url).status, 405)
        equal(mine.send("GET", mine.kid).status, 405)
        elsewhere = Attacker(site, host="www.police.example")
        equal(elsewhere.send("GET", elsewhere.base + "directory").status, 421)

    with suite.case("a nonce is good once, and not after a restart; the one that comes with the refusal is good"):
        request = jws(mine.key, mine.header(url), wanted)
        equal(mine.deliver(url, request).status, 201)
        equal(mine.deliver(url, request).problem, (400, "badNonce"))
        before = mine.nonce()
        site.stop()
        site.start()
        refused = mine.post(url, wanted, nonce=before)
        equal(refused.problem, (400, "badNonce"))
        equal(mine.post(url, wanted, nonce=refused.headers["Replay-Nonce"]).status, 200)

    with suite.case("a binding is good once, for its invitation, its key and its address"):
        web, db = bound(invite("one.example")), bound(invite("two.example"))
        for kid, secret in ((web[0], db[1]), ("0" * 12, web[1]), ("one.example", web[1]), (web[0], b64(b"x" * 32))):
            equal(Attacker(site).register(kid, secret).problem, (403, "unauthorized"))
        one, new = Attacker(site), mine.base + "new-account"
        equal(one.post(new, {"termsOfServiceAgreed": True}).problem, (403, "externalAccountRequired"))
        equal(one.post(new, {"onlyReturnExisting": True}).problem, (400, "accountDoesNotExist"))
        for forged in (
            binding(web[1], web[0], url, jwk(one.key)), binding(web[1], web[0], new, jwk(mine.key)),
            jws(one.key, {"alg": "ES256", "kid": web[0], "url": new}, jwk(one.key)),
        ):
            equal(one.post(new, {"externalAccountBinding": forged}).problem, (400, "malformed"))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda _: Attacker(site).register(*web).status, range(8)))
        equal(sorted(outcomes), [201] + [403] * 7)
        equal(rows(site, "SELECT count(*) FROM acme_accounts WHERE holder = 'one.example'"), [(1,)])

    with suite.case("names of others, orders of another account, requests with other names: nothing is issued"):
        other = account("c.example")
        before = rows(site, "SELECT count(*) FROM issued")
        for names in (["c.example"], ["a.example", "c.example"], ["*.example"], ["localhost"], ["a.example."], ["a.example\0.c.example"], ["127.0.0.1"]):
            refused = mine.order(*names)
            equal(refused.problem, (403, "rejectedIdentifier"), names)
            equal(refused.json()["subproblems"][-1]["identifier"]["value"], names[-1])
        address = mine.post(url, {"identifiers": [{"type": "ip", "value": "127.0.0.1"}]})
        contains(address.json()["subproblems"][0]["type"], "unsupportedIdentifier")
        for payload in ({"identifiers": []}, {}, {**wanted, "notAfter": "2099-01-01T00:00:00Z"}, {"identifiers": wanted["identifiers"] * 17}):
            equal(mine.post(url, payload).problem, (400, "malformed"), payload)
        order = mine.order("a.example")
        theirs = csr(["c.example"], new_key())
        equal(other.finalize(order, theirs).problem, (404, "malformed"))
        for address in (order.headers.get("Location"), order.json()["authorizations"][0], mine.kid, mine.kid + "/orders"):
            equal(other.post(address).problem, (404, "malformed"), address)
        for names, common in ((["c.example"], None), (["a.example", "c.example"], None), (["a.example", "b.example"], None), ([], None),
                              (["a.example"], "c.example"), (["*.example"], None), (["a.example"], "b.example")):
            equal(mine.finalize(order, csr(names, new_key(), common)).problem, (400, "badCSR"), (names, common))
        equal(rows(site, "SELECT count(*) FROM issued"), before)

    with suite.case("weak keys, the account's own, another's and a compromised one are certified for nobody"):
        order = mine.order("a.example")
        weak = [
            csr(["a.example"], rsa.generate_private_key(65537, 1024)), csr(["a.example"], rsa.generate_private_key(3, 2048)),
            csr(["a.example"], ec.generate_private_key(ec.SECP224R1())), csr(["a.example"], mine.key), csr(["a.example"], other.key),
            b64((ROOT / "crates/pki/tests/data/roca-2048.csr").read_bytes()), b64(b"none"), "!",
        ]
        changed = bytearray(base64.urlsafe_b64decode(csr(["a.example"], new_key()) + "=="))
        changed[-1] ^= 1
        for request in [*weak, b64(bytes(changed))]:
            assert mine.finalize(order, request).problem in ((400, "badCSR"), (400, "malformed"))
        taken = new_key()
        equal(isinstance(other.certificate(taken, "c.example"), str), True)
        equal(mine.finalize(order, csr(["a.example"], taken)).problem, (400, "badCSR"))
        lost = new_key()
        pem = mine.certificate(lost, "a.example")
        equal(other.post(mine.base + "revoke-cert", {"certificate": der(pem)}).problem, (403, "unauthorized"))
        equal(mine.post(mine.base + "revoke-cert", {"certificate": der(pem), "reason": 1}).status, 200)
        equal(mine.post(mine.base + "revoke-cert", {"certificate": der(pem), "reason": 1}).problem, (400, "alreadyRevoked"))
        equal(mine.post(mine.base + "revoke-cert", {"certificate": der((site.data / "keys/server.pem").read_bytes())}).problem, (404, "malformed"))
        equal(mine.certificate(lost, "a.example").problem, (400, "badCSR"))

    with suite.case("a suspended server gets nothing, a revoked one has no account any more, and a deactivated one stays so"):
        held = account("held.example")
        ready = held.order("held.example")
        site.ask("registry", "suspend", "--server", "held.example")
        equal(held.finalize(ready, csr(["held.example"], new_key())).problem, (403, "unauthorized"))
        contains(held.order("held.example").json()["detail"], "is suspended")
        site.ask("registry", "resume", "--server", "held.example")
        assert isinstance(held.certificate(new_key(), "held.example"), str)
        equal(len(site.ask("pki", "revoke", "--server", "held.example", "--reason", "key-compromise")["revoked"]), 1)
        contains(held.order("held.example").json()["detail"], "the account is revoked")
        site.ask("registry", "readmit", "--server", "held.example")
        contains(held.order("held.example").json()["detail"], "the account is revoked")
        assert isinstance(account("held.example").certificate(new_key(), "held.example"), str)
        gone = account("gone.example")
        gone.order("gone.example")
        equal(gone.post(gone.kid, {"status": "deactivated"}).json()["status"], "deactivated")
        for answer in (gone.order("gone.example"), gone.post(gone.kid), gone.register("0" * 12, "AAAA")):
            equal(answer.problem, (403, "unauthorized"))

    with suite.case("an account's key is changed by both keys and no other"):
        moving = account("moving.example")
        old, new, change = moving.key, new_key(), moving.base + "key-change"
        inner = lambda key, **values: jws(key, {"alg": "ES256", "jwk": jwk(key), "url": values.pop("url", change)},
                                          {"account": moving.kid, "oldKey": jwk(old), **values})
        for body, problem in (
            (inner(new, account=mine.kid), 400), (inner(new, oldKey=jwk(mine.key)), 400), (inner(new, url=url), 400), (inner(mine.key), 409),
            (inner(new) | {"signature": b64(bytes(64))}, 403), ({}, 400),
        ):
            equal(moving.post(change, body).status, problem)
        equal(moving.post(change, inner(new)).status, 200)
        equal(moving.order("moving.example").problem, (403, "unauthorized"))
        moving.key = new
        assert isinstance(moving.certificate(new_key(), "moving.example"), str)

    with suite.case("names of the site, of gateways and of other servers are nobody else's"):
        site.ask("vpn", "gateway-certificate", "--name", "vpn.example", "--out", site.folder / "gateway")
        for names in (["localhost"], ["vpn.example"], ["new.example", "localhost"], ["new.example", WEB], [ALIAS], ["*.example"], ["127.0.0.1"]):
            contains(invite(*names, code=1), "no server is invited by these names")
        refused = cordon("vpn", "gateway-certificate", "--name", ALIAS, "--out", site.folder / "posing", *site.arguments(), "--log", "off", code=1)
        contains(refused.stderr, "no name for a gateway")

    with suite.case("a site that is killed while it finalizes a first order has issued once or not at all, and the client goes on"):
        for n in range(KILLS):
            name, key = f"kill-{n}.example", new_key()
            killed = account(name)
            order = killed.order(name)
            body = jws(killed.key, killed.header(order.json()["finalize"]), {"csr": csr([name], key)})

            def ask():
                try:
                    killed.deliver(order.json()["finalize"], body)
                except OSError:
                    pass

            thread = threading.Thread(target=ask)
            thread.start()
            # Signing and recording take a few milliseconds.
            time.sleep(n * 0.0015)
            site.process.kill()
            thread.join()
            site.start()
            done = killed.finalize(order, csr([name], key))
            equal(done.status, 200, n)
            chain = killed.post(done.json()["certificate"]).body
            spki = hashlib.sha256(key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
            found = rows(site, f"SELECT serial FROM issued WHERE spki_sha256 = '{spki.hexdigest()}'")
            equal([number for number, in found], [f"{x509.load_pem_x509_certificate(chain).serial_number:x}".zfill(len(found[0][0]))])
        site.stop()
        told = [event["details"]["serial"] for event in events(site) if event["action"] == "certificate.issue"]
        issued = [number for number, in rows(site, "SELECT serial FROM issued WHERE holder_id LIKE 'kill-%'")]
        equal([told.count(number) for number in issued], [1] * len(issued))
        site.start()

    with suite.case("floods of nonces, accounts, orders and renewals are bounded in memory, database and log"):
        names = [f"n{n}.example" for n in range(16)]
        greedy = account(*names, renewals=10)
        status = lambda: int((Path(f"/proc/{site.process.child.pid}/status").read_text().split("VmRSS:")[1]).split()[0])
        size, before = status(), (site.data / "registry.sqlite").stat().st_size

        def flood(kind):
            one = Attacker(site)
            for n in range(250):
                match kind:
                    case "nonces":
                        one.nonce()
                    case "accounts":
                        one.key = new_key()
                        one.register(f"{n:012x}", b64(bytes(32)))
                    case "requests":
                        one.deliver(one.base + "new-order", "x" * 30_000)

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for done in [pool.submit(flood, kind) for kind in ("nonces", "accounts", "requests") * 2]:
                done.result()
        orders = [greedy.order(names[n % 16]).status for n in range(40)]
        equal(orders.count(201), 8)
        equal(set(orders), {201, 200, 429})
        outcomes = []
        for _ in range(12):
            order = greedy.order(names[0])
            outcomes.append(greedy.finalize(order, csr([names[0]], new_key())).status)
        equal(outcomes, [200] * 9 + [429] * 3)
        answers = [greedy.post(greedy.kid).status for _ in range(300)]
        equal(answers[-1], 429)
        assert rows(site, f"SELECT count(*) FROM acme_orders o JOIN acme_accounts a ON a.id = o.account WHERE a.holder = '{names[0]}'")[0][0] <= 16
        assert status() - size < 60_000, (size, status())
        assert (site.data / "registry.sqlite").stat().st_size - before < 1_000_000
        # Others are served all the while.
        assert isinstance(account("calm.example").certificate(new_key(), "calm.example"), str)

    with suite.case("where approvals are required, an approved invitation enrols by the names that were approved, and nobody revokes alone"):
        staff = enrol(site, ("clerk", "officer", 1), ("registrar-1", "registrar", 4))
        site.stop()
        site.config.write_text(site.config.read_text() + '\n[registration]\napprovals = "required"\n')
        site.start()

        def give(*command, by):
            proof = ("--as", staff[by].p12, "--as-password-file", staff[by].p12.with_name(f"{by}.p12.password"))
            return json.loads(cordon("registry", "request", *command, *site.arguments(), *proof, "--json", "--log", "off").stdout)

        asked = give("new", "invite", "--server", "asked.example", "--name", "www.asked.example", "--renewals", "1", "--reason", "new server",
                     "--submit", by="clerk")
        approved = give("approve", asked["id"], "--seen", asked["version"], by="registrar-1")
        out = site.folder / "approved.ini"
        give("carry-out", asked["id"], "--seen", approved["version"], "--out", out, by="clerk")
        approved = Certbot(site, site.folder / "certbot-5")
        approved.enrol(out)
        contains(openssl("x509", "-in", approved.live("asked.example"), "-noout", "-text"), "DNS:asked.example, DNS:www.asked.example")
        approved.renew()
        contains(approved.run("revoke", "--cert-name", "asked.example", "--no-delete-after-revoke",
                              "--server", f"https://localhost:{site.enrolment}/acme/directory", code=1), "on approved requests only")
        equal(mine.order("a.example").json()["status"], "ready")
        equal(mine.certificate(new_key(), "a.example").problem, (403, "unauthorized"))

    with suite.case("the log has every act and every refusal; it explains every certificate, but for those that were ordered"):
        site.stop()
        site.verify_audit()
        of_acme = [event for event in events(site) if event.get("details", {}).get("protocol") == "acme"]
        ways = {(event["action"], event["outcome"], event["details"].get("origin")) for event in of_acme}
        for way in (
            ("enrolment.account", "ok", None), ("enrolment.account-key", "ok", None), ("enrolment.account-deactivate", "ok", None),
            ("certificate.issue", "ok", "invitation"), ("certificate.issue", "ok", "renewal"), ("certificate.revoke", "ok", None),
            ("certificate.supersede", "ok", None),
        ):
            assert way in ways, (way, ways)
        codes = {event["details"].get("code") for event in of_acme if event["outcome"] == "deny"}
        # Of one address ten refusals of an action are recorded in ten minutes.
        for refused in ("no-renewals-left", "wrong-code", "acme-identifiers", "acme-not-yours", "other-names"):
            assert refused in codes, (refused, codes)
        audit = cordon("pki", "audit", *site.arguments(), "--json", "--log", "off", code=None)
        gaps = [gap["what"] for gap in json.loads(audit.stdout)["report"]["gaps"]]
        equal([gap for gap in gaps if "without a request" not in gap], [])
