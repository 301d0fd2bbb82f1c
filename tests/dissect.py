"""tshark reads every IKE message of a session with charon, whose log has the keys."""

import re
import subprocess

from tests.harness import equal, wait_for
from tests.harness import run as execute

# Names of tshark's table `ikev2_decryption_table`.
ENCRYPTION = {
    "AES_CBC_256": "AES-CBC-256 [RFC3602]",
    "AES_GCM_16_128": "AES-GCM-128 with 16 octet ICV [RFC5282]",
}
INTEGRITY = {"HMAC_SHA2_256_128": "HMAC_SHA2_256_128 [RFC4868]"}


class Capture:
    """What goes over the cable on charon's side."""

    def __init__(self, lab, file):
        self.file = file
        line = ["tcpdump", "-U", "-Z", "root", "-i", "cable", "-w", file, "udp port 500 or udp port 4500"]
        line = lab.network.command("server", *line)
        self.process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # It says so when it listens.
        self.process.stderr.readline()

    def stop(self):
        self.process.terminate()
        self.process.communicate()


def secrets(log):
    """For each IKE SA in the log its proposal and SK_ keys, as far as charon's level 4 prints them."""
    found, keys, proposal, name, value, wanted = [], {}, "", None, "", 0
    for line in log.splitlines():
        text = line.split("] ", 1)[-1]
        if chosen := re.search(r"selected proposal: IKE:(\S+)", text):
            proposal = chosen[1]
        if begins := re.match(r"S[kK]_(\w+) secret => (\d+) bytes", text):
            name, value, wanted = begins[1], "", 2 * int(begins[2])
        elif name and (row := re.match(r" *\d+: ((?:[0-9A-F]{2} )+)", text)):
            value = (value + row[1].replace(" ", ""))[:wanted]
            if len(value) == wanted:
                keys[name], last, name = value, name, None
                if last == "pr":
                    found.append((proposal, keys))
                    keys = {}
    return found


def tshark(file, *arguments):
    return execute("tshark", "-n", "-r", file, *arguments, timeout=120).stdout


def table(file, log):
    """Options that give tshark the keys: SAs in the log come in the order of their first message."""
    pairs = []
    for line in tshark(file, "-Y", "isakmp", "-T", "fields", "-e", "isakmp.ispi", "-e", "isakmp.rspi").splitlines():
        pair = tuple(line.split("\t"))
        if pair not in pairs and pair[1].strip("0"):
            pairs.append(pair)
    known = secrets(log)
    equal(len(known), len(pairs), "IKE SAs with keys in charon's log")
    options = []
    for pair, (proposal, keys) in zip(pairs, known):
        encryption, integrity = proposal.split("/")[:2]
        row = [*pair, keys["ei"], keys["er"], f'"{ENCRYPTION[encryption]}"']
        row += [keys.get("ai", ""), keys.get("ar", ""), f'"{INTEGRITY.get(integrity, "NONE [RFC4306]")}"']
        options += ["-o", "uat:ikev2_decryption_table:" + ",".join(row)]
    return options, len(pairs)


def check(file, log):
    """Every message dissects, decrypts and has a right integrity value; tshark has nothing to remark."""
    options, sas = table(file, log)
    fields = ["isakmp.exchangetype", "isakmp.enc.decrypted", "_ws.malformed", "_ws.expert.message"]
    names = [part for field in fields for part in ("-e", field)]
    # Fragments are put together in the frame of the last one.
    lines = tshark(file, *options, "-Y", "isakmp", "-T", "fields", *names).splitlines()
    for line in lines:
        exchange, _, malformed, expert = (line + "\t" * 4).split("\t")[:4]
        equal((malformed, expert), ("", ""), f"remarks on a message of exchange {exchange}")
    text = tshark(file, *options, "-Y", "isakmp", "-V")
    protected = len(re.findall(r"Payload: Encrypted and Authenticated(?: Fragment)? ", text))
    right = len(re.findall(r"Integrity Checksum Data: .*\[correct\]", text))
    equal(right, protected, "messages with a right integrity value")
    assert protected > 10, text[-2000:]
    return len(lines), protected, sas


def settled(pair):
    wait_for(lambda: pair.peer.count("ike-down"), "the end of the IKE SA")
