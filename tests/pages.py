"""Pages over several pages of violations of two units: every page answers, and each person sees their own unit."""

from tests.harness import Camera, Site, contains, cordon_json, equal, jpeg

# Violations of the unit of the tests' people, five pages of them, and of another one.
OWN, OTHER = 110, 30
PAGES = ["/", "/violations", "/violations?plate=KR+00", "/violations?place=A3&state=open", "/cameras"]


def run(suite):
    site = Site(suite, settings='\n[units.cameras]\ncamera-18 = "harbour"\n').start()
    person = site.people()["reviewer-3"]
    for device, count in (("camera-17", OWN), ("camera-18", OTHER)):
        camera = Camera(site, device).start()
        for number in range(count):
            camera.drop(f"{device}-{number}", jpeg(f"{device} {number}".encode(), 500), plate=f"KR {number:05d}")
        camera.drain()
        camera.stop()
    with suite.case(f"counters and rows of {OWN + OTHER} violations agree"):
        cordon_json("site", "check", "--data", site.data)
    with suite.case("every page answers, and the list has all of the own unit and nothing of another"):
        for path in PAGES:
            answer = person.request("GET", path)
            equal(answer.status, 200, f"status of {path}")
            contains(answer.text, "<main")
        rows = person.violations()
        equal(len(rows), OWN, "violations of the own unit")
        equal({row["device"] for row in rows}, {"camera-17"})
