"""Pages over an index with more rows than a camera brings in time, added as measurements add them."""

from scripts.index_rows import fill
from tests.harness import Site, contains, cordon_json, equal

ROWS = 600
PAGES = ["/", "/violations", "/violations?plate=KR+00", "/violations?place=A3&state=open", "/cameras"]


def run(suite):
    site = Site(suite).start()
    person = site.people()["reviewer-3"]
    site.stop()
    fill(site.data / "centre" / "centre.sqlite", ROWS, 0)
    site.start()
    with suite.case(f"{ROWS} rows that measurements add fit the index"):
        cordon_json("site", "check", "--data", site.data)
    with suite.case("every page answers, and the list has all of the own unit"):
        for path in PAGES:
            answer = person.request("GET", path)
            equal(answer.status, 200, f"status of {path}")
            contains(answer.text, "<main")
        equal(len(person.violations()), ROWS // 3, "violations of one of three units")
