"""`cordon vpn up` with EAP and with a post-quantum preshared key, against charon and against itself."""

from tests.harness import Site, contains, equal, run as execute, wait_for
from tests.ike_lab import (
    INSIDE, Authority, Daemon, Lab, certificate_auth, connection, initiate, mirrored, pair
)
from tests.ike_pair import NETS, PASSWORD

USER = "officer-4711"
QUANTUM = "a secret against quantum computers"
SERVER = {"remote_auth": "eap-mschapv2", "remote_eap": "eap_id = %any", "remote_id": "%any"}
CLIENT = {"local_auth": "eap-mschapv2", "local_eap": f"eap_id = {USER}", "cert": ""}


def nt_hash(password):
    """MD4, which OpenSSL 3 has only in its provider for old algorithms."""
    done = execute(
        "openssl", "dgst", "-provider", "legacy", "-provider", "default", "-md4", "-r",
        input=password.encode("utf-16-le"), text=False,
    )
    return done.stdout.split()[0].decode()


def gateway(folder, methods='"tls", "mschapv2"', users=True, **options):
    """The text of a connection at which peers log in."""
    file = ', users_file = "users"' if users else ""
    eap = f"eap = {{ methods = [{methods}]{file} }}"
    settings = {"auth": certificate_auth(folder), "start": "none", "remote": None, "remote_id": "any", "extra": eap}
    return connection(**(settings | options))


def at_charon(suite, lab, folder, top):
    for method, name, auth in [
        ("mschapv2", USER, 'password_file = "password"'),
        ("tls", "ours.example.org", ""),
    ]:
        with suite.case(f"eap-{method}: we log in at charon"):
            login = f'login = {{ name = "{name}", method = "{method}"{", " + auth if auth else ""} }}'
            own = certificate_auth(folder) if method == "tls" else ""
            text = connection(auth=own, local_id=None, extra=f"{login}\nlifetime = 8", child="lifetime = 3")
            charon = SERVER | {"remote_auth": f"eap-{method}"}
            ours = Daemon(lab, "client", text, top)
            ours.secret("password", PASSWORD)
            with lab.charon(pki=folder, **charon) as theirs, ours:
                initiate("ours", ours, theirs)
                lab.ping()
                contains(theirs.log(), f"EAP method EAP_{method.upper()} succeeded, MSK established")
                # Both kinds of new keys come by themselves.
                done = lambda: min(ours.counter("child_rekeys"), ours.counter("ike_rekeys")) > 0
                wait_for(done, lambda: ours.log(), 20)
                lab.ping()
                equal(ours.counter("established"), 1, "IKE SAs that came up")
    with suite.case("eap-mschapv2: a wrong password is refused by charon"):
        login = f'login = {{ name = "{USER}", method = "mschapv2", password_file = "password" }}'
        ours = Daemon(lab, "client", connection(auth="", local_id=None, extra=login), top)
        ours.secret("password", "another")
        with lab.charon(pki=folder, **SERVER), ours:
            ours.says("WARN", "negotiation of", "EAP: refused by the server")
            equal(ours.children(), [], "children")


def at_us(suite, lab, folder, top):
    for method, charon, who in [
        ("mschapv2", CLIENT, USER),
        ("tls", {"local_auth": "eap-tls"}, "theirs.example.org"),
    ]:
        with suite.case(f"eap-{method}: charon logs in at us"):
            ours = Daemon(lab, "client", gateway(folder), top)
            ours.secret("users", f"# ours\n{USER}:{PASSWORD}")
            with lab.charon(pki=folder, **charon) as theirs, ours:
                initiate("theirs", ours, theirs)
                lab.ping("server", INSIDE["client"], source=INSIDE["server"])
                sa = ours.sas()[0]
                equal(sa["peer"], who, "peer")
                if method == "tls":
                    equal(sa["certificate"], "CN=theirs.example.org", "certificate")
                for target in (["--child", "net"], ["--ike", "peer"]):
                    theirs.control("--rekey", *target)
                wait_for(lambda: ours.counter("ike_rekeys") == 1, lambda: ours.log())
                lab.ping("server", INSIDE["client"], source=INSIDE["server"])
    with suite.case("eap-mschapv2: wrong passwords and unknown users look the same to them, not to us"):
        heard = []
        for users, reason in [(f"{USER}:another", f"wrong user or password ({USER})"),
                              ("somebody:else", "there is no such user")]:
            ours = Daemon(lab, "client", gateway(folder, '"mschapv2"'))
            ours.secret("users", users)
            with lab.charon(pki=folder, **CLIENT) as theirs, ours:
                theirs.control("--initiate", "--child", "net", "--timeout", "20", code=None)
                ours.says("WARN", "negotiation of", reason)
                contains(ours.ask("explain")["failed"][0]["reason"], reason)
                contains(theirs.log(), "EAP-MS-CHAPv2 failed with error ERROR_AUTHENTICATION_FAILURE")
                heard.append([line.split("]", 1)[1] for line in theirs.log().splitlines() if "EAP" in line])
        equal(heard[0], heard[1], "what the peer hears")
    with suite.case("eap-mschapv2: who is no longer a user loses the tunnel at the next reload, others do not"):
        ours = Daemon(lab, "client", gateway(folder, '"mschapv2"'))
        hashed = f"{USER}:$NT${nt_hash(PASSWORD)}"
        ours.secret("users", hashed)
        with lab.charon(pki=folder, **CLIENT) as theirs, ours:
            initiate("theirs", ours, theirs)
            spi = ours.sas()[0]["spi"]
            ours.secret("users", f"{hashed}\nanother:one")
            equal(ours.ask("reload"), {"added": [], "changed": [], "removed": [], "renewed": []}, "reload")
            equal([sa["spi"] for sa in ours.sas()], [spi], "IKE SAs")
            ours.secret("users", "another:one")
            ours.tell("reload")
            ours.says("closing a tunnel", "the user is gone or has another password")
            wait_for(lambda: ours.sas() == [], lambda: ours.sas())
            wait_for(lambda: "INSTALLED" not in theirs.sas(), "charon's child to go")


def between_ours(suite, lab):
    """TLS 1.3, which this charon does not speak by itself."""
    good = Authority(lab.suite.folder / "eap")
    for name in ("gateway", "officer"):
        good.issue(name)
    revoked = good.issue("revoked")
    stranger = Authority(lab.suite.folder / "eap-stranger", "Stranger")
    stranger.issue("officer")
    good.revoke(revoked)
    trust = f'trust = {{ anchors = ["{good.folder}/ca.pem"], crls = ["{good.folder}/crl.pem"], require_crl = true }}'
    theirs = mirrored(
        local_id="gateway.example.org", remote_id="any", auth=certificate_auth(good.folder, "gateway"),
        extra='eap = { methods = ["tls"] }', suite=None,
    )

    def client(folder, name, remote_id="gateway.example.org"):
        login = f'login = {{ name = "{name}.example.org", method = "tls" }}'
        auth = certificate_auth(folder, name)
        return connection(auth=auth, local_id=None, remote_id=remote_id, extra=login, suite=None)

    with suite.case("eap-tls between two of ours; a certificate that is revoked ends it"):
        officer = client(good.folder, "officer")
        stack, ours, other = pair(lab, officer, theirs, trust, trust)
        with stack:
            ours.up()
            lab.ping(code=None, count=1)
            equal(other.sas()[0]["peer"], "officer.example.org", "peer")
            equal(other.sas()[0]["certificate"], "CN=officer.example.org", "certificate")
            serial = good.x509.load_pem_x509_certificate((good.folder / "officer.pem").read_bytes())
            good.revoke(revoked, serial)
            other.says("closing a tunnel", "was revoked", seconds=10)
            good.revoke(revoked)
    for title, text, reason in [
        ("revoked", client(good.folder, "revoked"), "certificate of revoked.example.org was revoked at"),
        ("unknown authority", client(stranger.folder, "officer"), "unknown authority CN=Stranger"),
    ]:
        with suite.case(f"eap-tls, {title}: the reason is ours alone"):
            both = f'trust = {{ anchors = ["{good.folder}/ca.pem"] }}'
            stack, ours, other = pair(lab, text, theirs, both, trust)
            with stack:
                other.says("WARN", "negotiation of", reason)
                ours.says("WARN", "negotiation of", "EAP: refused by the server")
                assert reason not in ours.log(), ours.log()
    with suite.case("eap-tls: a gateway of another name is not logged in at"):
        text = client(good.folder, "officer", remote_id="another.example.org")
        stack, ours, other = pair(lab, text, theirs, trust, trust)
        with stack:
            # We say whom we want, and it is not that.
            other.says("WARN", "negotiation of", "no connection for", "with EAP")
            ours.says("WARN", "negotiation of", "peer refused with AUTHENTICATION_FAILED")
            equal(other.sas(), [], "IKE SAs")


def profile(suite, lab):
    with suite.case("strongSwan with the profile of a user logs in"):
        site = Site(suite).start()
        folder, pki = suite.folder / "openvpn", suite.folder / "site-pki"
        # A certificate for the gateway: OpenVPN's server has the same kind.
        site.ask("vpn", "openvpn-profile", "--server", "ours.example.org", "--device", "unused", "--out", folder)
        server = (folder / "server.conf").read_text()
        pki.mkdir()
        for tag, name in [("cert", "ours.pem"), ("key", "ours.key"), ("ca", "ca.pem")]:
            (pki / name).write_text(server.split(f"<{tag}>\n")[1].split(f"</{tag}>")[0])
        (pki / "ours.key").chmod(0o600)
        out = suite.folder / "officer"
        common = ["--gateway", "ours.example.org", "--network", NETS["ours"], "--local", NETS["theirs"]]
        site.ask("vpn", "profile", "--user", USER, *common, "--out", out)
        # The suites that the profile names are those of a daemon without `ike` and `esp`.
        ours = Daemon(lab, "client", gateway(pki, '"mschapv2"', suite=None))
        ours.secret("users", f"{USER}:{PASSWORD}")
        with lab.charon(profile=out / "swanctl") as theirs, ours:
            config = theirs.folder / "swanctl" / "swanctl.conf"
            secret = f'secrets {{\n eap-1 {{\n id = {USER}\n secret = "{PASSWORD}"\n }}\n}}\n'
            config.write_text(config.read_text() + secret)
            theirs.load()
            theirs.control("--initiate", "--child", "tunnel", "--timeout", "20")
            ours.up()
            equal(ours.sas()[0]["peer"], USER, "peer")
            lab.ping("server", INSIDE["client"], source=INSIDE["server"])


def post_quantum(suite, lab):
    required = {"ppk": "ppk_id = lab\n    ppk_required = yes"}
    ppk = 'ppk = { id = "lab", secret_file = "ppk" }'
    for by in ["ours", "theirs"]:
        with suite.case(f"post-quantum preshared key, started by {by}"):
            start = "start" if by == "ours" else "none"
            ours = Daemon(lab, "client", connection(start=start, extra=ppk))
            ours.secret("ppk", QUANTUM)
            with lab.charon(**required) as theirs, ours:
                initiate(by, ours, theirs)
                contains(theirs.log(), "using PPK")
                lab.ping()
                theirs.control("--rekey", "--ike", "peer")
                wait_for(lambda: ours.counter("ike_rekeys") == 1, lambda: ours.log())
                lab.ping()
    with suite.case("another post-quantum preshared key, or none, is refused"):
        for text, secret in [(connection(extra=ppk), QUANTUM[::-1]), (connection(), QUANTUM)]:
            ours = Daemon(lab, "client", text)
            ours.secret("ppk", secret)
            with lab.charon(**required), ours:
                ours.says("WARN", "negotiation of", "AUTHENTICATION_FAILED")
                equal(ours.children(), [], "children")


def run(suite):
    lab = Lab(suite)
    folder = lab.pki("ecdsa")
    top = f'trust = {{ anchors = ["{folder}/ca.pem"] }}'
    at_charon(suite, lab, folder, top)
    at_us(suite, lab, folder, top)
    between_ours(suite, lab)
    profile(suite, lab)
    post_quantum(suite, lab)
