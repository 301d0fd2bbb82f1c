"""Identities and proofs of them: each kind beside our own daemon and beside strongSwan, started by either side."""

import contextlib
import hashlib

from tests.harness import contains, wait_for
from tests.ike_lab import Authority, Daemon, Lab, certificate_auth, connection, mirrored

HOSTS = {"ours": "ours.example.org", "theirs": "theirs.example.org"}
MAILS = {"ours": "anna@police.test", "theirs": "jan@police.test"}
# As RFC 4514 and as strongSwan write them.
NAME, THEIR_NAME = "CN={}, O=Example Police, C=PL", "C=PL, O=Example Police, CN={}"
KEY_IDS = {"ours": "keyid:station-7", "theirs": "keyid:headquarters"}


class People(Authority):
    """Certificates for distinguished names, hosts and mail addresses at once."""

    def issue_both(self):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        x509 = self.x509
        for side, host in HOSTS.items():
            key = ec.generate_private_key(ec.SECP256R1())
            parts = [("COUNTRY_NAME", "PL"), ("ORGANIZATION_NAME", "Example Police"), ("COMMON_NAME", host)]
            subject = x509.Name([x509.NameAttribute(getattr(x509.NameOID, kind), value) for kind, value in parts])
            names = x509.SubjectAlternativeName([x509.DNSName(host), x509.RFC822Name(MAILS[side])])
            self.save(f"{side}.pem", self.sign(self.builder(subject, key.public_key(), 1).add_extension(names, False)))
            path = self.folder / f"{side}.key"
            path.touch(mode=0o600)
            encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
            path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return self

    def pin(self, name):
        from cryptography.hazmat.primitives import serialization

        certificate = self.x509.load_pem_x509_certificate((self.folder / f"{name}.pem").read_bytes())
        encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        return hashlib.sha256(certificate.public_key().public_bytes(encoding, form)).hexdigest()


class Row:
    """One kind of identity or proof: how our file has it for either side, and how strongSwan's has it."""

    def __init__(self, title, ids, peers=None, auth=None, trust=True, charon=None, secret=False, starts=tuple(HOSTS)):
        self.title, self.ids, self.starts = title, ids, starts
        # Whom each side wants, where that is not the other's identity.
        self.peers = peers or {"ours": ids["theirs"], "theirs": ids["ours"]}
        self.auth, self.trust = auth, trust
        self.charon, self.secret = charon or {}, secret

    def text(self, people, side, **options):
        auth = self.auth(people, side) if self.auth else certificate_auth(people.folder, side)
        make = connection if side == "ours" else mirrored
        return make(local_id=self.ids[side], remote_id=self.peers[side], auth=auth, start="none", **options)

    def top(self, people):
        return f'trust = {{ anchors = ["{people.folder}/ca.pem"] }}' if self.trust else ""


def pinned(chain):
    def auth(people, side):
        other = {"ours": "theirs", "theirs": "ours"}[side]
        # The second one is that of a key to come.
        demand = f'pinned_keys = ["{people.pin(other)}", "{"0" * 64}"]' + ("" if chain else ", require_chain = false")
        return f"{certificate_auth(people.folder, side)}\npeer = {{ {demand} }}"

    return auth


def own_trust(people, side):
    return f'{certificate_auth(people.folder, side)}\ntrust = {{ anchors = ["{people.folder}/ca.pem"] }}'


def one_way(proved):
    """The secret is the proof of one side."""

    def auth(people, side):
        secret = f'psk_file = "psk"\npsk_proves = "{"us" if side == proved else "peer"}"'
        return secret if side == proved else f"{certificate_auth(people.folder, side)}\n{secret}"

    return auth


def named(form, **values):
    return {side: form.format(values.get(side, host)) for side, host in HOSTS.items()}


SECRET = lambda people, side: 'psk_file = "psk"'
ROWS = [
    Row("distinguished names", named(NAME), charon=named(THEIR_NAME)),
    Row(
        "distinguished names, written with other letters and spaces", named(NAME), charon=named(THEIR_NAME),
        peers={side: NAME.upper().replace(" POLICE", "   POLICE").format(HOSTS[other].upper())
               for side, other in (("ours", "theirs"), ("theirs", "ours"))},
        # Told of its own name in another spelling (IDr), strongSwan says that it is not this one.
        starts=("theirs",),
    ),
    Row(
        "a pattern of distinguished names", named(NAME), peers=dict.fromkeys(HOSTS, NAME.format("*")),
        charon={"ours": THEIR_NAME.format("*"), "theirs": THEIR_NAME.format(HOSTS["theirs"])},
    ),
    Row("a pattern of hosts", HOSTS, peers=dict.fromkeys(HOSTS, "*.example.org")),
    Row("mail addresses", MAILS),
    Row("a pattern of mail addresses", MAILS, peers=dict.fromkeys(HOSTS, "*@police.test")),
    Row("key IDs, with a secret", KEY_IDS, auth=SECRET, trust=False, secret=True),
    Row("distinguished names, with a secret", named(NAME), auth=SECRET, trust=False, charon=named(THEIR_NAME), secret=True),
    Row("hosts whose keys are pinned as well", HOSTS, auth=pinned(chain=True)),
    Row("hosts whose keys are pinned, without an authority", HOSTS, auth=pinned(chain=False), trust=False),
    Row("authorities of the connection", HOSTS, auth=own_trust, trust=False),
    Row(
        "a secret of ours, a certificate of theirs", HOSTS, auth=one_way("ours"),
        charon={**HOSTS, "remote_auth": "psk"},
    ),
    Row(
        "a certificate of ours, a secret of theirs", HOSTS, auth=one_way("theirs"),
        charon={**HOSTS, "local_auth": "psk", "cert": ""},
    ),
]


def beside_ours(suite, lab, people):
    for row in ROWS:
        with suite.case(f"{row.title}: two daemons of ours"), contextlib.ExitStack() as stack:
            top = row.top(people)
            stack.enter_context(Daemon(lab, "server", row.text(people, "theirs", suite=None), top))
            ours = stack.enter_context(Daemon(lab, "client", row.text(people, "ours", suite=None), top))
            ours.tell("connect", "peer")
            ours.up()


def beside_strongswan(suite, lab, people):
    for row in ROWS:
        by = " and by ".join(row.starts)
        with suite.case(f"{row.title}: strongSwan, started by {by}"), contextlib.ExitStack() as stack:
            ids = row.ids | row.charon
            options = {"local_id": ids["theirs"], "remote_id": ids["ours"]}
            options |= {key: value for key, value in row.charon.items() if key not in HOSTS}
            charon = stack.enter_context(lab.charon(pki=None if row.secret else people.folder, **options))
            ours = stack.enter_context(Daemon(lab, "client", row.text(people, "ours"), row.top(people)))
            if "ours" in row.starts:
                ours.tell("connect", "peer")
                ours.up()
                ours.tell("down", "peer")
                wait_for(lambda: "ESTABLISHED" not in charon.sas(), charon.sas)
            charon.control("--initiate", "--child", "net", "--timeout", "20")
            ours.up()


def refusals(suite, lab, people, others):
    """What is changed at the responder, and how it explains that."""
    trust = f'trust = {{ anchors = ["{others.folder}/ca.pem"] }}'
    certificate = certificate_auth(people.folder, "theirs")
    cases = [
        ("parts of a name in another order", {"remote_id": "C=PL, O=Example Police, CN=ours.example.org"}, "no connection for"),
        ("a pattern with one part less", {"remote_id": "CN=*, O=Example Police"}, "no connection for"),
        ("the key of the authority is pinned", {"auth": f'{certificate}\npeer = {{ pinned_keys = ["{people.pin("ca")}"] }}'},
         people.pin("ours")),
        ("authorities of another organisation", {"auth": f"{certificate}\n{trust}"}, "CN=CA"),
        ("a secret is wanted", {"auth": f'{certificate}\npsk_file = "psk"\npsk_proves = "peer"'}, "no connection for"),
    ]
    row = ROWS[0]
    ours = connection(local_id=row.ids["ours"], remote_id=row.ids["theirs"], suite=None, start="none",
                      auth=certificate_auth(people.folder))
    with Daemon(lab, "client", ours, row.top(people)) as client:
        for title, changed, expected in cases:
            options = {"local_id": row.ids["theirs"], "remote_id": row.ids["ours"], "auth": certificate} | changed
            with suite.case(f"refused: {title}"), Daemon(lab, "server", mirrored(suite=None, **options), row.top(people)) as other:
                client.tell("connect", "peer")
                wait_for(lambda: other.counter("failed_authentication"), other.log, 30)
                contains(other.ask("explain")["failed"][0]["reason"], expected)
                assert not other.sas(), other.sas()


def run(suite):
    lab = Lab(suite)
    # Each daemon of ours has its address on the tunnel's interface, but charon looks for its own.
    people = People(suite.folder / "people").issue_both()
    others = People(suite.folder / "others", "Others").issue_both()
    beside_strongswan(suite, lab, people)
    lab.network.run("server", "ip", "address", "delete", "10.5.2.1/32", "dev", "lo")
    beside_ours(suite, lab, people)
    refusals(suite, lab, people, others)
