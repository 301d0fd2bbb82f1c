"""From folder to receipt, beside openssl + curl + nginx, in interleaved rounds.

Ten cameras against four pipelines side by side. Both sides get the same pictures, sign and encrypt each, send it over mutual TLS 1.3 and store it.
Ours does more (verification, decryption, index, audit log, receipt, fsync at every step); the
pipeline gets what a script of three tools gives. A third one has it do the same work as far as such tools can: at the site each
block is synced, decrypted and verified, and its hash comes back in a signed receipt, synced as well. CPU time is that of all
processes of a side, clients and servers.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORDON = ROOT / "target/release/cordon"
CAMERAS = 10
# Pipelines side by side, as many as a camera uploads at a time.
PIPELINES = 4
LAB = CORDON.with_name("cordon-lab")


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], check=True, **kwargs)


def cpu_of(pid):
    """User and system seconds of a running process, children reaped by it included."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(n) for n in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def free_ports(count):
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start_site(work):
    ports = free_ports(4)
    config = work / "cordon.toml"
    names = ["portal", "intake", "enrolment", "metrics"]
    lines = [f'{n} = "127.0.0.1:{p}"' for n, p in zip(names, ports)]
    config.write_text("[listen]\n" + "\n".join(lines) + "\n")
    log = open(work / "site.log", "w")
    site = subprocess.Popen(
        [CORDON, "up", "--data", work / "site", "--config", config, "--json"],
        stdout=subprocess.PIPE, stderr=log, text=True)
    site.stdout.readline()
    return site, config


def pictures(work, count, site_config):
    """Draws the pictures with the demo, in a site of its own, and returns them."""
    folder = work / "pictures"
    folder.mkdir()
    run(LAB, "draw", "--out", folder, "--count", count, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.jpg"))


class Camera:
    """An agent that has enrolled, with its share of the pictures beside its watched folder."""

    def __init__(self, work, config, name, files):
        self.folder, self.count = work / name, len(files)
        run(CORDON, "registry", "code", "--data", work / "site", "--config", config,
            "--device", name, "--out", self.folder, stdout=subprocess.DEVNULL)
        self.incoming, self.stage = self.folder / "incoming", self.folder / "stage"
        self.incoming.mkdir()
        self.stage.mkdir()
        for file in files:
            for part in (file, file.with_suffix(".json")):
                shutil.copy(part, self.stage / part.name)
        log = open(self.folder / "log", "w")
        self.agent = subprocess.Popen(
            [CORDON, "camera", "run", "--config", self.folder / "camera.toml"], stdout=log, stderr=log)
        # Ready when it has enrolled; what follows is steady work.
        while not (self.folder / "identity.pem").exists():
            time.sleep(0.05)

    def begin(self):
        for file in sorted(self.stage.iterdir()):
            file.rename(self.incoming / file.name)

    def is_done(self):
        if self.agent.poll() is not None:
            sys.exit(f"a camera ended; see {self.folder}/log")
        receipts = self.folder / "spool" / "receipts"
        return receipts.exists() and len(list(receipts.iterdir())) >= self.count


def ours(work, files):
    site, config = start_site(work)
    cameras = [Camera(work, config, f"camera-{number + 1}", files[number::CAMERAS])
               for number in range(min(CAMERAS, len(files)))]
    time.sleep(1)
    processes = [site, *(camera.agent for camera in cameras)]
    before = [cpu_of(process.pid) for process in processes]
    started = time.monotonic()
    for camera in cameras:
        camera.begin()
    while not all(camera.is_done() for camera in cameras):
        if time.monotonic() > started + 600:
            sys.exit("not all receipts came")
        time.sleep(0.02)
    seconds = time.monotonic() - started
    cpu = [cpu_of(process.pid) - was for process, was in zip(processes, before)]
    for process in reversed(processes):
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    return seconds, sum(cpu), cpu[0]


def film(work, gigabytes):
    """One film of one camera from folder to receipt: seconds, and the most memory of the agent in MB."""
    site, config = start_site(work)
    camera = Camera(work, config, "camera-1", pictures(work, 1, config))
    settings = camera.folder / "camera.toml"
    settings.write_text(settings.read_text().replace("max_bytes = 2000000000", "max_bytes = 8000000000"))
    camera.agent.send_signal(signal.SIGTERM)
    camera.agent.wait(30)
    log = open(camera.folder / "log", "a")
    camera.agent = subprocess.Popen([CORDON, "camera", "run", "--config", settings], stdout=log, stderr=log)
    time.sleep(1)
    [picture] = camera.stage.glob("*.jpg")
    film = picture.with_suffix(".mp4")
    with open(film, "wb") as file:
        for _ in range(int(gigabytes * 1000)):
            file.write(os.urandom(1_000_000))
    picture.unlink()
    started = time.monotonic()
    camera.begin()
    while not camera.is_done():
        if time.monotonic() > started + 600:
            sys.exit("the receipt did not come")
        time.sleep(0.02)
    seconds = time.monotonic() - started
    status = pathlib.Path(f"/proc/{camera.agent.pid}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    for process in (camera.agent, site):
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    return seconds, memory / 1000


def make_certificates(folder):
    """A root and three P-256 certificates: signer, recipient, server and client of TLS."""
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384",
        "-nodes", "-keyout", folder / "root.key", "-out", folder / "root.pem", "-days", "2",
        "-subj", "/CN=bench root", stderr=subprocess.DEVNULL)
    extensions = folder / "ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1\nkeyUsage=digitalSignature,keyAgreement\n"
                          "extendedKeyUsage=serverAuth,clientAuth,emailProtection\n")
    for name in ("camera", "centre", "server"):
        run("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr",
            "-subj", f"/CN={name}", stderr=subprocess.DEVNULL)
        run("openssl", "x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "root.pem",
            "-CAkey", folder / "root.key", "-CAcreateserial", "-days", "2", "-extfile", extensions,
            "-out", folder / f"{name}.pem", stderr=subprocess.DEVNULL)


def start_nginx(folder):
    [port] = free_ports(1)
    store = folder / "store"
    store.mkdir()
    (folder / "receipts").mkdir()
    (folder / "nginx.conf").write_text(f"""
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_processes 1;
user root;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; client_max_body_size 64m;
  proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
  scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_protocols TLSv1.3;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
    ssl_client_certificate {folder}/root.pem; ssl_verify_client on;
    location / {{ root {store}; dav_methods PUT; }}
  }}
}}
""")
    nginx = subprocess.Popen(["nginx", "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)
    while not (folder / "nginx.pid").exists():
        time.sleep(0.05)
    return nginx, port


# Signs, encrypts and sends $1.
SEND = (
    'openssl cms -sign -binary -nodetach -outform DER -in "$1" -signer "$2/camera.pem" '
    '-inkey "$2/camera.key" -md sha256 | '
    'openssl cms -encrypt -binary -aes-256-gcm -outform DER -out "$5" '
    '-recip "$2/centre.pem" -keyopt ecdh_kdf_md:sha256 && '
    'curl -sSf --http1.1 --tlsv1.3 --cacert "$2/root.pem" --cert "$2/camera.pem" '
    '--key "$2/camera.key" -T "$5" "https://127.0.0.1:$3/$4" -o /dev/null')
# What Cordon does with a block that arrived and these tools can: bytes and name on the disk, decryption, verification, receipt.
RECEIVE = (
    ' && sync -d "$2/store/$4" && sync "$2/store" && '
    'openssl cms -decrypt -binary -inform DER -in "$2/store/$4" -recip "$2/centre.pem" -inkey "$2/centre.key" | '
    'openssl cms -verify -binary -inform DER -CAfile "$2/root.pem" -purpose any -out /dev/null 2>/dev/null && '
    'openssl dgst -sha256 -r "$2/store/$4" | '
    'openssl cms -sign -binary -nodetach -outform DER -signer "$2/centre.pem" -inkey "$2/centre.key" -md sha256 '
    '-out "$2/receipts/$4" && '
    'sync -d "$2/receipts/$4" && sync "$2/receipts"')


def pipeline(work, files, same_work):
    folder = work / "pipeline"
    folder.mkdir()
    make_certificates(folder)
    nginx, port = start_nginx(folder)
    workers = subprocess.run(["pgrep", "-P", str(nginx.pid)], capture_output=True, text=True)
    pids = [nginx.pid, *map(int, workers.stdout.split())]
    script = "set -o pipefail; " + SEND + (RECEIVE if same_work else "")
    cpu = sum(map(cpu_of, pids))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    def send(numbered):
        number, file = numbered
        run("bash", "-c", script, "bash", file, folder, port, file.name, f"{folder}/block-{number % PIPELINES}")

    with concurrent.futures.ThreadPoolExecutor(PIPELINES) as pool:
        lanes = [[(n, f) for n, f in enumerate(files) if n % PIPELINES == lane] for lane in range(PIPELINES)]
        list(pool.map(lambda lane: [send(item) for item in lane], lanes))
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = sum(map(cpu_of, pids)) - cpu
    cpu += after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    stored = len(list((folder / "receipts" if same_work else folder / "store").iterdir()))
    nginx.send_signal(signal.SIGTERM)
    nginx.wait(30)
    if stored != len(files):
        sys.exit(f"nginx stored {stored} of {len(files)} files")
    return seconds, cpu


def spread(values, digits):
    """Median, least and greatest."""
    return [round(value, digits) for value in (statistics.median(values), min(values), max(values))]


def round_of(base, count, size, files, same_work):
    """One round: seconds and CPU seconds of each side."""
    with tempfile.TemporaryDirectory(prefix="round-", dir=base) as name:
        our_seconds, our_cpu, site_cpu = ours(pathlib.Path(name), files)
    sides = {"cordon": (our_seconds, our_cpu)}
    for side, same in [("openssl_curl_nginx", False), ("the_same_work", True)][:2 if same_work else 1]:
        with tempfile.TemporaryDirectory(prefix="round-", dir=base) as name:
            sides[side] = pipeline(pathlib.Path(name), files, same)
    return sides, site_cpu / count * 1000


def compare(base, count, rounds, same_work):
    print(f"drawing {count} pictures", file=sys.stderr)
    files = pictures(base, count, None)
    size = sum(f.stat().st_size for f in files)
    measured, site = [], []
    for number in range(rounds):
        sides, site_cpu = round_of(base, count, size, files, same_work)
        measured.append(sides)
        site.append(site_cpu)
        print(f"round {number + 1}:", {side: round(seconds, 2) for side, (seconds, _) in sides.items()}, file=sys.stderr)
    result = {"pictures": count, "megabytes": round(size / 1e6, 1), "rounds": rounds,
              "each": "median, least, greatest", "site_cpu_ms_per_picture": spread(site, 2)}
    for side in measured[0]:
        seconds = [sides[side][0] for sides in measured]
        entry = {"mb_per_s": spread([size / 1e6 / s for s in seconds], 1), "seconds": spread(seconds, 2),
                 "cpu_s_per_gb": spread([sides[side][1] / size * 1e9 for sides in measured], 2),
                 "cpu_ms_per_picture": spread([sides[side][1] / count * 1000 for sides in measured], 2)}
        if side != "cordon":
            entry["speed_ratio"] = spread([sides[side][0] / sides["cordon"][0] for sides in measured], 2)
            entry["cpu_ratio"] = spread([sides[side][1] / sides["cordon"][1] for sides in measured], 2)
        result[side] = entry
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="?", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--same-work", action="store_true", help="the peer once more, with a site that verifies and syncs")
    parser.add_argument("--film", type=float, metavar="GB", help="one film of this size instead, without a peer")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target", help="where both sides keep their data")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cordon-bench-", dir=asked.folder) as name:
        base = pathlib.Path(name)
        if asked.film:
            films = []
            for _ in range(asked.rounds):
                with tempfile.TemporaryDirectory(prefix="round-", dir=base) as folder:
                    films.append(film(pathlib.Path(folder), asked.film))
            result = {"gigabytes": asked.film, "rounds": asked.rounds, "each": "median, least, greatest",
                      "seconds": spread([seconds for seconds, _ in films], 2),
                      "mb_per_s": spread([asked.film * 1000 / seconds for seconds, _ in films], 1),
                      "agent_mb": spread([memory for _, memory in films], 1)}
        else:
            result = compare(base, asked.pictures, asked.rounds, asked.same_work)
    print(json.dumps(result, indent=2))
    if not asked.film and result["openssl_curl_nginx"]["speed_ratio"][0] <= 1:
        sys.exit("slower than the pipeline")


if __name__ == "__main__":
    main()
