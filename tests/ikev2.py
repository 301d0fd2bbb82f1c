"""IKEv2 against strongSwan's charon, in both roles: secrets, certificates, suites, rekeying, loss."""

import base64
import json
import plistlib
import re
import time

from tests import dissect
from tests.harness import Site, contains, cordon, equal, run as execute, wait_for
from tests.ike_pair import CHARON6_ROOT, ESP, IKE, NETS, OURS, PASSWORD, PEER, THEIRS, Lab, Pair


def basics(suite, lab):
    for by in ["ours", "theirs"]:
        with suite.case(f"shared secret, started by {by}, rekeyed and closed by both"):
            with Pair(lab) as pair:
                pair.up(by)
                pair.rekey_all()
                pair.charon.control("--terminate", "--ike", "peer")
                pair.peer.expect("ike-down closed by the peer")
            with Pair(lab) as pair:
                pair.up(by)
                pair.peer.tell("delete-child")
                pair.peer.expect("child-down")
                wait_for(lambda: "INSTALLED" not in pair.charon.sas(), "charon's child to go")
                pair.peer.tell("close")
                pair.peer.expect("ike-down closed by us")
                wait_for(lambda: not pair.charon.sas().strip(), "charon's IKE SA to go")


def certificates(suite, lab):
    for kind in ["ecdsa", "rsa", "ed25519"]:
        pki = lab.pki(kind)
        for by in ["ours", "theirs"]:
            with suite.case(f"{kind} certificates, started by {by}"), Pair(lab, pki=pki) as pair:
                pair.up(by)
                pair.rekey_all()
    with suite.case("certificates in fragments of 400 bytes"):
        with Pair(lab, pki=pki, extra=["--datagram", "400"]) as pair:
            pair.up("ours")
            contains(pair.charon.log(), "received fragment #1 of")


def suites(suite, lab):
    for ike, esp in [
        ("aes256-sha256-prfsha256-modp2048", "aes256-sha256-modp2048"),
        ("aes128ccm8-prfsha256-x25519", "aes128ccm8-x25519"),
        ("aes256ccm16-prfsha256-x25519", "aes256ccm16-x25519"),
        ("aes128ctr-sha256-prfsha256-x25519", "aes128ctr-sha256-x25519"),
        ("aes192-aesxcbc-prfaesxcbc-x25519", "aes192-aesxcbc-x25519"),
        ("aes128-sha1-prfsha1-ecp256", "aes128-sha1-ecp256"),
        ("aes256-sha512-prfsha512-modp3072", "aes256-sha512-modp3072"),
        ("aes256gcm16-prfsha384-ecp384", "aes256gcm16-ecp384"),
        ("chacha20poly1305-prfsha512-x25519", "chacha20poly1305"),
        ("aes128-sha384-prfsha384-modp4096", "aes128-sha384-modp4096"),
    ]:
        for by in ["ours", "theirs"]:
            # charon spells the first without its pseudorandom function as well.
            with suite.case(f"{ike} / {esp}, started by {by}"), Pair(lab, ike, esp) as pair:
                pair.up(by)
                pair.rekey_all()


def addresses(suite, lab):
    with suite.case("charon gives us an address inside the tunnel"):
        charon = {"addresses": "pools = inside", "remote": "dynamic"}
        nets = {"ours": "0.0.0.0/0", "theirs": NETS["theirs"]}
        with Pair(lab, charon=charon, nets=nets, extra=["--virtual", "request"]) as pair:
            pair.up("ours")
            contains(pair.charon.sas(), "[10.9.0.1]")
            equal(pair.peer.count("ike-up FQDN:theirs.example.org AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE25519 [10.9.0.1]"), 1)
            pair.rekey_all()
    with suite.case("we give charon an address inside the tunnel"):
        charon = {"addresses": "vips = 0.0.0.0", "local": "dynamic"}
        nets = {"ours": NETS["ours"], "theirs": "0.0.0.0/0"}
        with Pair(lab, charon=charon, nets=nets, extra=["--virtual", "10.9.0.17"]) as pair:
            pair.up("theirs")
            contains(pair.charon.sas(), "[10.9.0.17]")
            contains(pair.charon.sas(), "local  10.9.0.17/32")
            pair.rekey_all()


def post_quantum(suite, lab):
    charon = {"ppk": "ppk_id = lab\n    ppk_required = yes"}
    extra = ["--ppk", "a secret against quantum computers"]
    for by in ["ours", "theirs"]:
        with suite.case(f"post-quantum preshared key, started by {by}"):
            with Pair(lab, charon=charon, extra=extra) as pair:
                pair.up(by)
                contains(pair.charon.log(), "using PPK")
                pair.rekey_all()
    charon = {"ppk": "ppk_id = lab\n    ppk_required = no"}
    extra += ["--ppk-optional", "yes"]
    for title, charon, extra, pki, used in [
        ("on both sides", charon, extra, None, True),
        ("on both sides, with certificates", charon, extra, lab.pki("ecdsa"), True),
        # As responder charon insists on the name that its connection has.
        ("with different names", charon, [*extra, "--ppk-id", "other"], lab.pki("ecdsa"), False),
        # charon has the secret named lab, whether its connection asks for it or not.
        ("on our side alone", {}, [*extra, "--ppk-id", "other"], lab.pki("ecdsa"), False),
        ("on charon's side alone", charon, [], None, False),
    ]:
        for by in ["theirs"] if "different" in title else ["ours", "theirs"]:
            with suite.case(f"optional post-quantum preshared key {title}, started by {by}"):
                with Pair(lab, pki=pki, charon=charon, extra=extra) as pair:
                    pair.up(by)
                    equal("using PPK" in pair.charon.log(), used, pair.charon.log()[-3000:])
                    pair.rekey_all()


def eap(suite, lab):
    """Name and password, or TLS, inside IKE_AUTH; the gateway has a certificate."""
    pki = lab.pki("ecdsa")
    user = ["--user", "officer-4711", "--password", PASSWORD]
    for method in ["mschapv2", "tls"]:
        name = f"eap-{method}"
        extra = ["--eap-client", method, "--user", "officer-4711", "--password", PASSWORD]
        charon = {"remote_auth": name, "remote_eap": "eap_id = %any", "remote_id": "%any"}
        if method == "tls":
            extra[3] = "ours.example.org"
        with suite.case(f"{name}: we log in at charon"):
            with Pair(lab, pki=pki, extra=extra, charon=charon) as pair:
                pair.up("ours")
                contains(pair.charon.log(), f"EAP method EAP_{method.upper()} succeeded, MSK established")
                pair.rekey_all()
        extra = ["--eap-server", method, *user]
        charon = {"local_auth": name, "local_eap": "eap_id = officer-4711", "cert": ""}
        if method == "tls":
            charon = {"local_auth": name}
        with suite.case(f"{name}: charon logs in at us"):
            with Pair(lab, pki=pki, extra=extra, charon=charon, remote="any") as pair:
                pair.up("theirs")
                who = "officer-4711" if method == "mschapv2" else "theirs.example.org"
                pair.peer.expect(f"ike-up KEY_ID:{who}")
                pair.rekey_all()
    with suite.case("eap-mschapv2: a wrong password is refused by both"):
        extra = ["--eap-client", "mschapv2", "--user", "officer-4711", "--password", "another"]
        charon = {"remote_auth": "eap-mschapv2", "remote_eap": "eap_id = %any", "remote_id": "%any"}
        with Pair(lab, pki=pki, extra=extra, charon=charon) as pair:
            pair.peer.tell("initiate")
            pair.peer.expect("ike-down authentication failed: EAP: refused by the server")
        extra = ["--eap-server", "mschapv2", *user]
        charon = {"local_auth": "eap-mschapv2", "local_eap": "eap_id = officer-4711", "cert": ""}
        charon |= {"password": "another"}
        with Pair(lab, pki=pki, extra=extra, charon=charon, remote="any") as pair:
            pair.charon.control("--initiate", "--child", "net", "--timeout", "20", code=None)
            pair.peer.expect("ike-down authentication failed: EAP: wrong user or password")


def profiles(suite, lab):
    """What `cordon vpn profile` writes, given to those for whom it is."""
    site = Site(suite).start()
    folder = suite.folder / "openvpn"
    # A certificate for the gateway: OpenVPN's server has the same kind.
    site.ask("vpn", "openvpn-profile", "--server", "ours.example.org", "--device", "unused", "--out", folder)
    server = (folder / "server.conf").read_text()
    pki = suite.folder / "site-pki"
    pki.mkdir()
    for tag, name in [("cert", "ours.pem"), ("key", "ours.key"), ("ca", "ca.pem")]:
        (pki / name).write_text(server.split(f"<{tag}>\n")[1].split(f"</{tag}>")[0])
    with suite.case("profiles of a device"):
        out = suite.folder / "camera-18"
        common = ["--gateway", "ours.example.org", "--network", NETS["ours"], "--local", NETS["theirs"]]
        site.ask("vpn", "profile", "--device", "camera-18", *common, "--out", out)
        password = (out / "camera-18.p12.password").read_text().strip()
        plist = plistlib.loads((out / "camera-18.mobileconfig").read_bytes())
        kinds = {payload["PayloadType"]: payload for payload in plist["PayloadContent"]}
        vpn = kinds["com.apple.vpn.managed"]["IKEv2"]
        equal(vpn["PayloadCertificateUUID"], kinds["com.apple.security.pkcs12"]["PayloadUUID"])
        equal(vpn["LocalIdentifier"], "C=EU, O=LEA-EU, CN=camera-18")
        android = json.loads((out / "camera-18.sswan").read_text())
        p12 = (out / "camera-18.p12").read_bytes()
        equal(base64.b64decode(android["local"]["p12"]), p12)
        equal(kinds["com.apple.security.pkcs12"]["PayloadContent"], p12)
        show = ["openssl", "pkcs12", "-in", out / "camera-18.p12", "-nokeys", "-passin", f"pass:{password}"]
        contains(execute(*show).stdout, "CN = camera-18")
        root = base64.b64decode(android["remote"]["cert"])
        equal(kinds["com.apple.security.root"]["PayloadContent"], root)
        script = (out / "camera-18.ps1").read_text()
        contains(script, f"FromBase64String('{base64.b64encode(root).decode()}')")
        for file in out.rglob("*"):
            equal(file.is_dir() or file.stat().st_mode & 0o77 == 0, True, f"{file} is nobody else's")
    with suite.case("strongSwan with the profile of a device connects to us"):
        peer = {"remote": "any", "charon": {"profile": out / "swanctl"}}
        esp, ike = "aes256gcm16-x25519", "aes256gcm16-prfsha256-x25519"
        with Pair(lab, ike, esp, pki=pki, **peer) as pair:
            pair.charon.control("--initiate", "--child", "tunnel", "--timeout", "20")
            pair.peer.expect("child-up")
            contains(pair.charon.sas(), "CN=camera-18'")
            pair.charon.control("--rekey", "--child", "tunnel")
            pair.peer.expect("child-down")
            pair.check_spis()
    with suite.case("profiles of a user hold no secret"):
        out = suite.folder / "officer"
        site.ask("vpn", "profile", "--user", "officer-4711", *common, "--out", out)
        names = sorted(file.name for file in out.rglob("*") if file.is_file())
        equal(names, ["officer-4711.mobileconfig", "officer-4711.ps1", "officer-4711.sswan", "root.pem", "swanctl-6.conf", "swanctl.conf"])
        equal(json.loads((out / "officer-4711.sswan").read_text())["type"], "ikev2-eap")
        plist = plistlib.loads((out / "officer-4711.mobileconfig").read_bytes())
        equal(plist["PayloadContent"][-1]["IKEv2"]["AuthName"], "officer-4711")
        charon = {"profile": out / "swanctl"}
        with Pair(lab, ike, esp, pki=pki, remote="any", charon=charon,
                  extra=["--eap-server", "mschapv2", "--user", "officer-4711", "--password", PASSWORD]) as pair:
            secrets = pair.charon.folder / "swanctl" / "swanctl.conf"
            text = f'secrets {{\n eap-1 {{\n id = officer-4711\n secret = "{PASSWORD}"\n }}\n}}\n'
            secrets.write_text(secrets.read_text() + text)
            pair.charon.load()
            pair.charon.control("--initiate", "--child", "tunnel", "--timeout", "20")
            pair.peer.expect("ike-up KEY_ID:officer-4711")
    with suite.case("a profile is not written over another, nor for names with quotes"):
        for name, where in [("camera-18", out), ("a'b", suite.folder / "new"), ("a b", suite.folder / "new")]:
            line = ["vpn", "profile", "--device", name, *common, "--out", where]
            cordon(*line, *site.arguments(), code=1 if where == out else 2)
        equal((suite.folder / "new").exists(), False)


def hybrid(suite, lab):
    """ML-KEM-768 after X25519, in IKE_INTERMEDIATE and in IKE_FOLLOWUP_KE."""
    if not CHARON6_ROOT:
        print("        not run: ML-KEM with strongSwan 6, as CHARON6_ROOT names no root with it", flush=True)
        return
    ike, esp = f"{IKE}-ke1_mlkem768", f"{ESP}-ke1_mlkem768"
    for by in ["ours", "theirs"]:
        with suite.case(f"{ike} / {esp}, started by {by}"):
            with Pair(lab, ike, esp, charon={"root": CHARON6_ROOT}) as pair:
                pair.up(by)
                pair.rekey_all()
                log = pair.charon.log()
                # The first two and three replaced; the first Child SA has no key exchange of its own.
                equal(len(re.findall(r"selected proposal: IKE:\S+/KE1_ML_KEM_768", log)), 3)
                equal(len(re.findall(r"selected proposal: ESP:\S+/KE1_ML_KEM_768", log)), 3)
                equal(len(re.findall("parsed IKE_FOLLOWUP_KE (?:request|response) \\d+ \\[ KE", log)), 5)
    with suite.case("both sides rekey with ML-KEM all the time while a tenth of the datagrams is lost"):
        with Pair(lab, ike, esp, charon={"root": CHARON6_ROOT}) as pair:
            rekey_in_loss(suite, lab, pair, 12)


def mobility(suite, lab):
    """We change our address; charon follows (RFC 4555)."""
    other = "10.207.0.3"
    lab.network.run("client", "ip", "address", "add", f"{other}/24", "dev", "cable")
    extra = ["--mobike", "yes", "--also", other]
    with suite.case("we move to another address and back"):
        with Pair(lab, charon={"mobike": "yes"}, extra=extra) as pair:
            pair.up("ours")
            for turn, address in enumerate([other, OURS], 1):
                pair.peer.tell(f"move {address}")
                pair.peer.expect(f"path {address}:4500")
                wait_for(lambda: f"@ {address}[4500]" in pair.charon.sas(), lambda: pair.charon.sas())
                pair.charon.control("--rekey", "--child", "net")
                pair.peer.expect("child-down", turn)
                pair.check_spis()
            equal(pair.peer.count("ike-down"), 0, "IKE SAs that went down")
    with suite.case("charon moves to another address, and we see whether it is there"):
        with Pair(lab, charon={"mobike": "yes"}, extra=extra) as pair:
            pair.up("theirs")
            # In a network of its own, since secondary addresses go with the first.
            moved = "10.207.0.4"
            lab.network.run("server", "ip", "address", "add", f"{moved}/25", "dev", "cable")
            try:
                lab.network.run("server", "ip", "address", "del", f"{THEIRS}/24", "dev", "cable")
                # Whichever of our addresses it chooses.
                wait_for(lambda: any(line.startswith("path ") and line.endswith(f" {moved}:4500") for line in pair.peer.lines), "the move")
                contains(pair.charon.log(), "N(COOKIE2)")
                pair.charon.control("--rekey", "--child", "net")
                pair.peer.expect("child-down")
                pair.check_spis()
            finally:
                lab.network.run("server", "ip", "address", "add", f"{THEIRS}/24", "dev", "cable")
                lab.network.run("server", "ip", "address", "del", f"{moved}/25", "dev", "cable")


def dissection(suite, lab):
    """tshark, with the keys from charon's log, reads what both sides say."""
    user = ["--user", "officer-4711", "--password", PASSWORD]
    eap = {"remote_auth": "eap-mschapv2", "remote_eap": "eap_id = %any", "remote_id": "%any"}
    # The second address comes from `mobility`.
    mobile = ["--mobike", "yes", "--also", "10.207.0.3"]
    cbc = "aes256-sha256-prfsha256-modp2048"
    sessions = [
        ("AES-GCM, certificates, fragments, MOBIKE", "rsa", ["--datagram", "600", *mobile], {"mobike": "yes"}, IKE, ESP),
        ("AES-CBC with SHA-2, EAP", "ecdsa", ["--eap-client", "mschapv2", *user], eap, cbc, ESP),
    ]
    if CHARON6_ROOT:
        # tshark takes one set of keys for an IKE SA, so IKE_INTERMEDIATE is left out.
        root = {"root": CHARON6_ROOT}
        sessions.append(("IKE_FOLLOWUP_KE with ML-KEM", "ed25519", [], root, IKE, f"{ESP}-ke1_mlkem768"))
    for title, kind, extra, charon, ike, esp in sessions:
        with suite.case(f"tshark reads all that is said ({title})"):
            pki = lab.pki(kind)
            capture = dissect.Capture(lab, suite.folder / f"{kind}.pcap")
            try:
                with Pair(lab, ike=ike, esp=esp, pki=pki, extra=extra, charon={"level": 4} | charon) as pair:
                    pair.up("ours")
                    if "--mobike" in extra:
                        for address in ["10.207.0.3", OURS]:
                            pair.peer.tell(f"move {address}")
                            pair.peer.expect(f"path {address}:4500")
                    pair.rekey_all()
                    pair.peer.tell("delete-child")
                    pair.peer.expect("child-down", 4)
                    pair.peer.tell("create-child")
                    pair.peer.expect("child-up", 5)
                    pair.peer.tell("close")
                    dissect.settled(pair)
                    log = pair.charon.log()
            finally:
                capture.stop()
            messages, protected, sas = dissect.check(capture.file, log)
            print(f"        {messages} messages, {protected} of them protected, {sas} IKE SAs", flush=True)


def refusals(suite, lab):
    with suite.case("a wrong secret is refused by both"), Pair(lab, secret="another") as pair:
        pair.peer.tell("initiate")
        pair.peer.expect("ike-down peer refused with AUTHENTICATION_FAILED")
        pair.charon.control("--initiate", "--child", "net", "--timeout", "20", code=None)
        pair.peer.expect("ike-down authentication failed")
    with suite.case("cookies are answered by charon"), Pair(lab, extra=["--cookies", "yes"]) as pair:
        pair.up("theirs")
        contains(pair.charon.log(), "parsed IKE_SA_INIT response 0 [ N(COOKIE) ]")


def storm(suite, lab, turns=12):
    with suite.case("both sides rekey all the time while a tenth of the datagrams is lost"), Pair(lab) as pair:
        rekey_in_loss(suite, lab, pair, turns)


def rekey_in_loss(suite, lab, pair, turns):
    pair.up("ours")
    suite.finally_do(lab.loss, 0)
    lab.loss(10)
    for turn in range(turns):
        ours, theirs = ("rekey-child", "child") if turn % 3 else ("rekey-ike", "ike")
        pair.peer.tell(ours)
        target = ["--child", "net"] if theirs == "child" else ["--ike", "peer"]
        pair.charon.control("--rekey", *target, code=None)
        time.sleep(2.5)
    lab.loss(0)
    wait_for(lambda: len(pair.spis()) == 1, lambda: pair.charon.sas(), 60)
    wait_for(lambda: pair.charon.sas().count("ESTABLISHED") == 1, lambda: pair.charon.sas(), 60)
    equal(pair.peer.count("ike-down"), 0, "IKE SAs that went down")
    # charon 6.1 may forget one without deleting it; we do that half a minute later.
    wait_for(lambda: pair.peer.alive() == pair.spis(), lambda: f"{pair.peer.alive()} here, {pair.spis()} there", 90)
    children, ikes = pair.peer.count("child-up") - 1, pair.peer.count("ike-rekeyed")
    print(f"        {children} Child SAs and {ikes} IKE SAs replaced", flush=True)


def run(suite):
    assert PEER.exists(), f"{PEER} is missing; run cargo build -p ikev2 --example ike_peer"
    lab = Lab(suite)
    basics(suite, lab)
    certificates(suite, lab)
    suites(suite, lab)
    addresses(suite, lab)
    post_quantum(suite, lab)
    eap(suite, lab)
    profiles(suite, lab)
    hybrid(suite, lab)
    mobility(suite, lab)
    dissection(suite, lab)
    refusals(suite, lab)
    storm(suite, lab)
