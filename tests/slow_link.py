"""A camera on slow bearers: what arrives, what is wasted, what the byte counter says.

The camera and the site are in namespaces of their own, with a bearer between them of 300 ms and the rate in each direction,
which loses 5 % of the packets after they have left their sender.
"""

import argparse
import json
import os
import sys
import time

from tests.bearer_link import QUEUE, Bearer, tun_in
from tests.harness import CORDON, Camera, Process, Site, jpeg, wait_for
from tests.namespaces import Network
from tests.runner import Suite, finish, run_suite

DELAY, LOSS = 0.3, 0.05
# Bytes of payload in a full segment over those of its packet: IPv4, TCP with timestamps.
PAYLOAD = 1448 / 1500
# The ends of the bearer.
FAR = {"server": "10.208.0.1", "client": "10.208.0.2"}


class FarSite(Site):
    def start(self):
        text = self.config.read_text().replace("127.0.0.1", "0.0.0.0", 3)
        self.config.write_text(text)
        line = self.suite.network.command("server", CORDON, "up", *self.arguments(), "--json")
        self.process = Process(line, self.log)
        self.ready = self.process.answer(120)
        self.root.write_bytes((self.data / "pki" / "root.pem").read_bytes())
        return self


class FarCamera(Camera):
    def start(self):
        text = self.config.read_text().replace("localhost", FAR["server"])
        self.config.write_text(text)
        line = self.site.suite.network.command("client", CORDON, "camera", "run", "--config", self.config)
        self.process = Process(line, self.log)
        return self


def crossed(network):
    """Bytes of the packets that left and reached the camera's interface, and of those that left."""
    done = network.run("client", "ip", "-s", "-j", "link", "show", "bearer")
    stats = json.loads(done.stdout)[0]["stats64"]
    return stats["tx"]["bytes"] + stats["rx"]["bytes"], stats["tx"]["bytes"]


def counted(camera):
    """What the camera's byte counter says after an orderly stop."""
    files = list(camera.folder.rglob("any.json")) or list(camera.folder.rglob("bearers/*.json"))
    return json.loads(files[0].read_text())["reserved"]


def bearer(suite, site, kbit, pictures, size, seconds, cut=False, share=0.85):
    network = suite.network
    camera = FarCamera(site, f"camera-{int(kbit * 10)}{'-cut' if cut else ''}", settings="\n[uplink]\nbackoff_min_ms = 500\n")
    with suite.case(f"{pictures} pictures of {size // 1000} kB over {kbit} kbit/s{' with cuts' if cut else ''}"):
        # The first picture enrols the camera, over a bearer that is not yet slow.
        camera.start()
        camera.drop("first", jpeg(b"first"))
        wait_for(lambda: camera.receipts(), lambda: f"the first receipt\n{camera.log.read_text()[-1500:]}", 60)
        camera.stop()
        before_count, (before, before_sent) = counted(camera), crossed(network)
        link = suite.bearer
        link.rate, link.delay, link.loss = kbit * 125, DELAY, LOSS
        try:
            for n in range(pictures):
                camera.drop(f"p{n}", jpeg(b"p%d" % n, size))
            started = time.monotonic()
            camera.start()

            def arrived():
                return len(camera.receipts()) > pictures

            def what():
                return f"{len(camera.receipts()) - 1} of {pictures} arrived\n{camera.log.read_text()[-3000:]}"

            if cut:
                time.sleep(min(20, seconds / 4))
                link.cut = True
                time.sleep(8)
                link.cut = False
            wait_for(arrived, what, seconds, 0.2)
            took = time.monotonic() - started
            camera.stop()
        finally:
            link.rate, link.delay, link.loss, link.cut = None, 0.0, 0.0, False
        wire, sent = (now - then for now, then in zip(crossed(network), (before, before_sent)))
        count = counted(camera) - before_count
        useful = pictures * (size + 6000)
        rate = kbit * 125
        # What left the camera beyond the pictures, their packets and the packets sent again.
        waste = 1 - useful / PAYLOAD / (1 - LOSS) / sent
        print(
            f"        {kbit} kbit/s: {took:.0f} s, {useful / took / rate:.1%} of the bearer useful, {waste:.1%} wasted, "
            f"counted {count / wire - 1:+.1%} beside {wire} bytes", flush=True,
        )
        assert useful / took / rate >= share, f"{useful / took / rate:.1%} of the bearer was useful"
        if not cut:
            assert waste <= 0.05, f"{waste:.1%} of what was sent was waste"
            assert abs(count / wire - 1) <= 0.02, f"{count} bytes counted, {wire} crossed"


def film(suite, site, mbit, delay, megabytes, share):
    """One film over a link that is fast and far: the rate at which it is sent has to follow the link."""
    with suite.case(f"a film of {megabytes} MB over {mbit} Mbit/s and {delay * 2000:.0f} ms takes at least {share:.0%} of the link"):
        camera = FarCamera(site, "camera-film").start()
        camera.drop("first", jpeg(b"first"))
        wait_for(camera.receipts, lambda: f"the first receipt\n{camera.log.read_text()[-1500:]}", 60)
        link = suite.bearer
        # Twice what is on its way when the link is full waits at most.
        link.rate, link.delay, link.queue = mbit * 125_000, delay, int(mbit * 125_000 * delay * 6 / 1500)
        try:
            camera.drop("film", os.urandom(megabytes * 1_000_000), "mp4")
            started = time.monotonic()
            wait_for(lambda: len(camera.receipts()) > 1, lambda: f"the film's receipt\n{camera.log.read_text()[-1500:]}", 120, 0.05)
            took = time.monotonic() - started
        finally:
            link.rate, link.delay, link.queue = None, 0.0, QUEUE
            camera.stop()
        useful = megabytes / (mbit / 8 * PAYLOAD) / took
        print(f"        {took:.1f} s: {useful:.1%} of what the link can carry", flush=True)
        assert useful >= share, f"{useful:.1%}"


def run(suite, full=False, chosen=None):
    suite.network = Network()
    suite.finally_do(suite.network.remove)
    suite.network.create()
    ends = [tun_in(suite.network.names[side], "bearer") for side in FAR]
    suite.bearer = Bearer(*ends)
    suite.finally_do(suite.bearer.close)
    for side, address in FAR.items():
        suite.network.run(side, "ip", "address", "add", f"{address}/24", "dev", "bearer")
        suite.network.run(side, "ip", "link", "set", "bearer", "up")
    site = FarSite(suite, settings=f'[site]\nnames = ["localhost", "127.0.0.1", "{FAR["server"]}"]\n').start()
    if chosen and chosen.film:
        film(suite, site, 100, 0.015, 300, 0.90)
        return
    if chosen and chosen.kbit:
        seconds = int(3 * chosen.pictures * chosen.size / chosen.kbit / 125) + 120
        bearer(suite, site, chosen.kbit, chosen.pictures, chosen.size, seconds, share=chosen.share)
        return
    bearer(suite, site, 128, 3, 160_000, 120, share=0.55)
    bearer(suite, site, 40, 1, 100_000, 120, cut=True, share=0.3)
    if full:
        bearer(suite, site, 128, 10, 640_000, 900)
        bearer(suite, site, 40, 10, 640_000, 2400)
        bearer(suite, site, 28.8, 10, 640_000, 3000)
        bearer(suite, site, 7.2, 10, 640_000, 12_000)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--full", action="store_true", help="10 pictures over 7.2 to 128 kbit/s: four hours")
    arguments.add_argument("--film", action="store_true", help="a film over a fast link, for a release build on a quiet machine")
    arguments.add_argument("--kbit", type=float, help="one bearer")
    arguments.add_argument("--pictures", type=int, default=10)
    arguments.add_argument("--size", type=int, default=640_000)
    arguments.add_argument("--share", type=float, default=0.85, help="least part of the bearer that is useful")
    chosen = arguments.parse_args()

    def chosen_run(suite):
        run(suite, chosen.full, chosen)

    chosen_suite = Suite("slow_link")
    run_suite(chosen_suite, chosen_run, 6 * 3600)
    sys.exit(finish([chosen_suite]))
