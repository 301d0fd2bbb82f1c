"""People log in to foreign applications by OpenID Connect: Apache with mod_auth_openidc, and Authlib.

    python -m tests openid
"""

import base64
import hashlib
import html
import http.client
import json
import os
import re
import sys
import time
import urllib.parse

from playwright.sync_api import sync_playwright

from tests.harness import PEOPLE, Site, contains, cordon, equal, tls_context, wait_for
from tests.openid_lab import Browser, Page, walk
from tests.portal import Portal, launch, visit
from tests.request_pages import accessible
from tests.runner import main

ADMINISTRATOR = ("administrator-4", 4, ["administrator"])
# Seconds from a change at the site to the application's ignorance of the session.
WITHIN = 5.0


def pkce():
    verifier = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    return verifier, challenge


class Client:
    """A relying party of our own that can do everything wrong; Authlib is beside it."""

    def __init__(self, site, name, secret):
        self.site, self.name, self.secret = site, name, secret
        self.origin = f"https://localhost:{site.portal}"
        self.redirect = f"https://{name}.example.org/callback"

    def address(self, challenge, **changes):
        query = {
            "client_id": self.name, "redirect_uri": self.redirect, "response_type": "code", "scope": "openid profile",
            "state": "s1", "nonce": "n1", "code_challenge": challenge, "code_challenge_method": "S256", **changes,
        }
        return f"{self.origin}/openid/authorize?" + urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})

    def answer(self, browser, challenge, **changes):
        """What comes back to the application, or the page that the person sees."""
        target = browser.open(self.address(challenge, **changes), "cross-site", stop=self.redirect)
        if isinstance(target, Page):
            return target
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))

    def redeem(self, code, verifier, secret=None, redirect=None, **changes):
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect or self.redirect, "code_verifier": verifier, **changes}
        basic = base64.b64encode(f"{self.name}:{secret or self.secret}".encode()).decode()
        return self.post(form, {"authorization": f"Basic {basic}"})

    def post(self, form, headers):
        connection = http.client.HTTPSConnection("localhost", self.site.portal, context=tls_context(self.site.root))
        try:
            headers = {"content-type": "application/x-www-form-urlencoded", **headers}
            form = {name: value for name, value in form.items() if value is not None}
            connection.request("POST", "/openid/token", urllib.parse.urlencode(form), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def userinfo(self, token):
        connection = http.client.HTTPSConnection("localhost", self.site.portal, context=tls_context(self.site.root))
        try:
            connection.request("GET", "/openid/userinfo", headers={"authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if body else None
        finally:
            connection.close()


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def foreign(suite, site, people, apache, browser):
    officer, reviewer, administrator = people["officer-2"], people["reviewer-3"], people["administrator-4"]
    wiki = f"{apache.url}/"
    with suite.case("Apache: a person logs in with a certificate, from the tile on"):
        contains(officer.request("GET", "/").text, 'href="/services/wiki"')
        visitor = browser(officer)
        page = visitor.open(f"https://localhost:{site.portal}/services/wiki")
        equal((page.status, page.url), (200, wiki), "page")
        contains(page.text, "officer-2 level 2 by urn:cordon:acr:certificate")
        assert any("/openid/authorize?" in url for _, url, _ in visitor.trail), visitor.trail
        again = visitor.send("GET", wiki)
        equal(again.status, 200, "status by the application's own session")
        stranger = browser(None).open(wiki)
        contains(stranger.text, "autocomplete=\"username\"")
    with suite.case("Apache: a person whose level is too low gets a page with the reason, and no session"):
        site.ask("service", "change", "wiki", "--level", "3", by=administrator)
        visitor = browser(officer)
        page = visitor.open(wiki)
        equal(page.status, 403, "status")
        contains(html.unescape(page.text), "its level is above your clearance")
        contains(page.text, "<code>service-above-clearance</code>")
        equal(browser(reviewer).open(wiki).status, 200, "status of somebody with the level")
        site.ask("service", "change", "wiki", "--level", "2", by=administrator)
        equal(visitor.open(wiki).status, 200, "status after the change")
    with suite.case("Apache: an answer with another state, or with a code of another login, opens nothing"):
        visitor = browser(officer)
        callback = f"{apache.url}/oidc/callback"
        target = visitor.open(wiki, stop=callback)
        forged = re.sub(r"state=[^&]+", "state=forged", target)
        assert visitor.open(forged, "cross-site").status >= 400
        victim, attacker = browser(officer), browser(reviewer)
        stolen = urllib.parse.parse_qs(urllib.parse.urlsplit(attacker.open(wiki, stop=callback)).query)["code"][0]
        target = victim.open(wiki, stop=callback)
        injected = re.sub(r"code=[^&]+", f"code={stolen}", target)
        page = victim.open(injected, "cross-site")
        assert "reviewer-3" not in page.text and "level" not in page.text, page.text
        equal(victim.send("GET", wiki).status, 302, "status without a session")
        contains(apache.log.read_text(), "code_verifier does not fit the challenge")


def endings(suite, site, people, apache, browser):
    officer, administrator = people["officer-2"], people["administrator-4"]
    wiki = f"{apache.url}/"

    def logged_in(person):
        visitor = browser(person)
        equal(visitor.open(wiki).status, 200, "status after the login")
        return visitor

    def knows(visitor):
        return visitor.send("GET", wiki).status == 200

    def ends(visitor, what, began):
        wait_for(lambda: not knows(visitor), lambda: f"{what}: {apache.log.read_text()[-1500:]} {site.log_text()[-1500:]}", 20)
        seconds = time.monotonic() - began
        print(f"        {what}: {seconds:.2f} s", flush=True)
        assert seconds <= WITHIN, f"{what} took {seconds:.2f} s"

    with suite.case("Apache: sessions end within five seconds of the level, the unit and the record"):
        for change, back in (
            (("--level", "4"), ("--level", "2")),
            (("--unit", "press"), ("--any-unit",)),
            (("--role", "auditor"), ("--role", "officer", "--role", "reviewer")),
        ):
            visitor, began = logged_in(officer), time.monotonic()
            site.ask("service", "change", "wiki", *change, by=administrator)
            ends(visitor, " ".join(change), began)
            site.ask("service", "change", "wiki", *back, by=administrator)
    with suite.case("Apache: sessions end within five seconds of the service's removal"):
        known = site.ask("service", "show", "wiki")
        visitor, began = logged_in(officer), time.monotonic()
        site.ask("service", "remove", "wiki", by=administrator)
        ends(visitor, "removed", began)
        equal(visitor.open(wiki).status, 400, "status of another login")
        secret = (apache.folder / "wiki.secret")
        secret.unlink()
        words = ["--id", "wiki", "--name", "Wiki", "--address", wiki, "--owner", known["owner"], "--level", 2, "--role", "officer", "--role", "reviewer"]
        words += ["--redirect", known["redirects"][0], "--secret-out", secret, "--logout", known["logout"], "--logout-trust", apache.folder / "wiki.pem"]
        site.ask("service", "add", *words, by=administrator)
        file = apache.folder / "wiki-secret.conf"
        file.write_text(re.sub(r"OIDCClientSecret .*", f"OIDCClientSecret {secret.read_text().strip()}", file.read_text()))
        apache.process.child.send_signal(1)
        wait_for(lambda: browser(officer).open(wiki).status == 200, "Apache with the new secret", 20)
    with suite.case("Apache: a disabled person is out within five seconds"):
        visitor, other, began = logged_in(officer), logged_in(people["reviewer-3"]), time.monotonic()
        site.ask("directory", "disable", "--uid", "officer-2")
        ends(visitor, "disabled", began)
        assert knows(other), "somebody else is logged out"
        equal(visitor.open(wiki).status, 403, "status of another login")
        site.ask("directory", "enable", "--uid", "officer-2")
        assert knows(logged_in(officer))
    with suite.case("Apache: logging out of all applications ends the session there"):
        visitor, began = logged_in(officer), time.monotonic()
        asked = visitor.send("GET", f"https://localhost:{site.portal}/openid/logout")
        token = re.search(r'name="token" value="([0-9a-f]+)"', asked.text)[1]
        forged = visitor.send("POST", f"https://localhost:{site.portal}/openid/logout", {"token": "0" * 64}, "same-origin")
        equal(forged.status, 403, "status without the form's token")
        assert knows(visitor), "a forged form logs out"
        done = visitor.send("POST", f"https://localhost:{site.portal}/openid/logout", {"token": token}, "same-origin")
        contains(done.text, "Your login")
        ends(visitor, "logged out", began)
    with suite.case("Apache: a session by password ends with the session in the portal"):
        site.ask("service", "change", "wiki", "--level", "1", by=administrator)
        site.ask("directory", "password", "--uid", "officer-2", input="a password for the tests\n")
        visitor = browser(None)
        form = visitor.open(wiki)
        following = html.unescape(re.search(r'name="next" value="([^"]+)"', form.text)[1])
        login = f"https://localhost:{site.portal}/login"
        wrong = visitor.open(login, "same-origin", {"uid": "officer-2", "password": "wrong", "next": following})
        contains(wrong.text, 'name="next"')
        page = visitor.open(login, "same-origin", {"uid": "officer-2", "password": "a password for the tests", "next": following})
        contains(page.text, "officer-2 level 1 by urn:cordon:acr:password")
        # The browser keeps the cookie from a request that the application began: a page of the portal asks again.
        visitor.cookies[apache.port].clear()
        before = visitor.refreshes
        equal(visitor.open(wiki).status, 200, "status of a second login")
        equal(visitor.refreshes, before + 1, "pages between")
        home, began = visitor.send("GET", f"https://localhost:{site.portal}/"), time.monotonic()
        token = re.search(r'action="/logout"><input type="hidden" name="token" value="([0-9a-f]+)"', home.text)[1]
        visitor.send("POST", f"https://localhost:{site.portal}/logout", {"token": token}, "same-origin")
        ends(visitor, "logged out of the portal", began)
        for evil in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
            page = visitor.send("POST", login, {"uid": "officer-2", "password": "a password for the tests", "next": evil}, "same-origin")
            equal((page.headers["location"], page.headers["refresh"]), ("/", None), f"answer to {evil}")
        site.ask("service", "change", "wiki", "--level", "2", by=administrator)
    with suite.case("Apache: logouts that cannot be delivered are sent when the application is back, after a kill too"):
        visitor = logged_in(officer)
        apache.process.child.send_signal(19)
        site.ask("directory", "disable", "--uid", "officer-2")
        time.sleep(2)
        site.process.kill()
        site.start()
        apache.process.child.send_signal(18)
        wait_for(lambda: not knows(visitor), lambda: site.log_text()[-2000:], 30)
        site.ask("directory", "enable", "--uid", "officer-2")


def refusals(suite, site, people, browser, client):
    officer = people["officer-2"]
    verifier, challenge = pkce()
    # Used when it has expired, at the end.
    late = client.answer(browser(officer), challenge)["code"], time.monotonic()
    with suite.case("a code becomes tokens once; its replay ends what came of it"):
        answer = client.answer(browser(officer), challenge)
        equal((answer["state"], answer["iss"]), ("s1", client.origin), "state and issuer")
        status, tokens = client.redeem(answer["code"], verifier)
        equal((status, tokens["token_type"], tokens["scope"]), (200, "Bearer", "openid profile"), "answer")
        said = claims(tokens["id_token"])
        equal([said[name] for name in ("iss", "aud", "sub", "nonce", "clearance")], [client.origin, client.name, "officer-2", "n1", 2], "claims")
        assert said["exp"] - said["iat"] == 300 and said["auth_time"] <= said["iat"] and "email" not in said, said
        equal(client.userinfo(tokens["access_token"])[1]["sub"], "officer-2", "subject")
        equal(client.userinfo("other")[0], 401, "status of another token")
        equal(client.redeem(answer["code"], verifier), (400, {"error": "invalid_grant", "error_description": "the code was used before"}))
        equal(client.userinfo(tokens["access_token"])[0], 401, "status after the replay")
    with suite.case("codes with another verifier, address, client, secret or flow are refused"):
        other = Client(site, "other", client.other_secret)
        for what, redeem in (
            ("verifier", lambda code: client.redeem(code, pkce()[0])),
            ("no verifier", lambda code: client.redeem(code, None)),
            ("address", lambda code: client.redeem(code, verifier, redirect=f"{client.redirect}/")),
            ("client", lambda code: other.redeem(code, verifier, redirect=client.redirect)),
            ("secret", lambda code: client.redeem(code, verifier, secret="wrong")),
            ("flow", lambda code: client.redeem(code, verifier, grant_type="password")),
            ("post", lambda code: client.post({"grant_type": "authorization_code", "code": code, "client_id": client.name, "client_secret": client.secret, "code_verifier": verifier, "redirect_uri": client.redirect}, {})),
        ):
            status, answer = redeem(client.answer(browser(officer), challenge)["code"])
            assert status in (400, 401) and "id_token" not in answer, (what, answer)
        equal(client.redeem("x" * 43, verifier)[1]["error"], "invalid_grant")
    with suite.case("authorization requests without PKCE, with another address or flow are refused"):
        def refused(**changes):
            answer = client.answer(browser(officer), challenge, **changes)
            return answer["error"] if isinstance(answer, dict) else answer.status
        equal(refused(redirect_uri="https://evil.example/"), 400)
        equal(refused(redirect_uri=f"{client.redirect}?x=1"), 400)
        equal(refused(client_id="none"), 400)
        equal(refused(code_challenge=None), "invalid_request")
        equal(refused(code_challenge_method="plain"), "invalid_request")
        equal(refused(response_type="token"), "unsupported_response_type")
        equal(refused(scope="profile"), "invalid_scope")
        equal(refused(request="e30."), "request_not_supported")
        twice = browser(officer).open(client.address(challenge) + "&client_id=wiki", "cross-site")
        equal(twice.status, 400, "status of a parameter given twice")
        posted = browser(officer).send("POST", client.address(challenge), {}, "cross-site")
        assert posted.status in (403, 405), posted.status
    with suite.case("silent requests never show a page, and demands on the login are honoured"):
        def silent(person, **changes):
            answer = client.answer(browser(person), challenge, prompt="none", **changes)
            return answer.get("error") or "code" in answer
        equal(silent(officer), True)
        equal(silent(None), "login_required")
        equal(silent(people["auditor-1"]), "access_denied")
        equal(silent(officer, acr_values="urn:cordon:acr:certificate"), True)
        equal(silent(officer, acr_values="urn:other"), "unmet_authentication_requirements")
        equal(silent(officer, max_age="60"), True)
        refused = client.answer(browser(people["auditor-1"]), challenge)
        equal(refused.status, 403, "status of the page")
        contains(refused.text, "no rule permits it for your roles")
    with suite.case("a person who is disabled between code and token gets none"):
        code = client.answer(browser(officer), challenge)["code"]
        site.ask("directory", "disable", "--uid", "officer-2")
        equal(client.redeem(code, verifier)[1], {"error": "invalid_grant", "error_description": "the access rules refuse by now"})
        site.ask("directory", "enable", "--uid", "officer-2")
    with suite.case("an expired code is refused"):
        code, issued = late
        time.sleep(max(0, 61 - (time.monotonic() - issued)))
        equal(client.redeem(code, verifier)[1]["error_description"], "the code is unknown or has expired")


def chromium(suite, site, people, apache):
    """What only a real browser shows: cookies of other sites, pages that lead on, and our policy about forms."""
    wiki, administrator = f"{apache.url}/", people["administrator-4"]
    with sync_playwright() as playwright:
        browser = launch(playwright)
        portal = Portal(site, browser)
        with suite.case("Chromium: a login by password leads back to the application, and is there for the next one"):
            site.ask("service", "change", "wiki", "--level", "1", by=administrator)
            context = portal.context()
            page = context.new_page()
            page.goto(wiki)
            assert page.url.startswith(f"{portal.origin}/login?next="), page.url
            accessible(page)
            page.get_by_label("User name").fill("officer-2")
            page.get_by_label("Password").fill("a password for the tests")
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(wiki)
            contains(page.content(), "officer-2 level 1 by urn:cordon:acr:password")
            kept = [cookie for cookie in context.cookies() if cookie["name"].startswith("__Host-cordon")]
            assert kept, context.cookies()
            context.clear_cookies()
            context.add_cookies(kept)
            # The application sends the browser; the portal's cookie is for requests of the portal's pages only.
            page.goto(wiki)
            page.wait_for_url(wiki)
            contains(page.content(), "officer-2 level 1 by urn:cordon:acr:password")
            site.ask("service", "change", "wiki", "--level", "2", by=administrator)
            wait_for(lambda: "officer-2 level" not in page.goto(wiki).text(), "the end of the session", 6)
            contains(page.content(), "its level is above your clearance")
        with suite.case("Chromium: from the tile into the application with a certificate, and the pages are accessible"):
            officer = people["officer-2"]
            page = portal.context(p12=officer.p12, passphrase=officer.password).new_page()
            visit(page, "/")
            accessible(page)
            page.get_by_role("link", name="Wiki IT department").click()
            page.wait_for_url(wiki)
            contains(page.content(), "officer-2 level 2 by urn:cordon:acr:certificate")
            for path in ("/services", "/services?q=none", "/openid/logout"):
                accessible(visit(page, path))
            page.get_by_role("button", name="Log out of all applications").click()
            contains(page.content(), "has ended")
            wait_for(lambda: page.context.request.get(wiki, max_redirects=0).status == 302, "the end of the session", 6)
        with suite.case("Chromium complained about nothing"):
            equal(portal.complaints, [], "complaints")
        browser.close()


def authlib(suite, site, people, browser, folder):
    """Authlib with a key of its own (`private_key_jwt`), and what it must be refused."""
    from authlib.integrations.requests_client import OAuth2Session
    from authlib.oauth2.rfc7523 import PrivateKeyJWT
    from joserfc import jwt
    from joserfc.jwk import ECKey, KeySet, OctKey

    officer, administrator = people["officer-2"], people["administrator-4"]
    key = ECKey.generate_key("P-256")
    public = folder / "desk.jwk"
    public.write_text(json.dumps(key.as_dict(private=False)))
    site.ask(
        *("service add --id desk --name Desk --address https://desk.example.org/ --owner IT --level 1 --role officer --unit traffic").split(),
        *["--redirect", "https://desk.example.org/callback", "--client-key", public], by=administrator,
    )
    origin = f"https://localhost:{site.portal}"
    metadata = json.loads(officer.request("GET", "/.well-known/openid-configuration").text)
    equal((metadata["issuer"], metadata["code_challenge_methods_supported"]), (origin, ["S256"]), "metadata")

    def keys():
        return json.loads(officer.request("GET", "/openid/keys").text)["keys"]

    def session():
        session = OAuth2Session("desk", key, token_endpoint_auth_method="private_key_jwt", scope="openid profile email roles", redirect_uri="https://desk.example.org/callback", code_challenge_method="S256")
        session.register_client_auth_method(PrivateKeyJWT(metadata["token_endpoint"], alg="ES256"))
        session.verify, session.trust_env = str(site.root), False
        return session

    def log_in(session):
        verifier = pkce()[0]
        address, state = session.create_authorization_url(metadata["authorization_endpoint"], code_verifier=verifier, nonce="n2")
        answer = browser(officer).open(address, "cross-site", stop="https://desk.example.org/callback")
        return session.fetch_token(metadata["token_endpoint"], authorization_response=answer, state=state, code_verifier=verifier)

    with suite.case("Authlib: a login with a key of the application's own verifies"):
        token = log_in(session())
        found = jwt.decode(token["id_token"], KeySet.import_key_set({"keys": keys()}), algorithms=["ES256"]).claims
        demanded = {"iss": origin, "aud": "desk", "nonce": "n2"}

        def validate(**changes):
            wanted = {name: {"essential": True, "value": value} for name, value in {**demanded, **changes}.items()}
            jwt.JWTClaimsRegistry(**wanted).validate(found)

        validate()
        equal([found[name] for name in ("sub", "email", "roles", "units", "amr")], ["officer-2", "officer-2@example.org", ["officer"], ["traffic"], ["pop"]], "claims")
        for name, value in (("aud", "wiki"), ("nonce", "n1"), ("iss", "https://other.example")):
            try:
                validate(**{name: value})
            except Exception as error:
                contains(str(error), name)
            else:
                raise AssertionError(f"a token for another {name} is accepted")
    with suite.case("assertions with another key, algorithm, audience or issuer, and repeated ones, are refused"):
        plain = Client(site, "desk", None)
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

        def answer(signer=key, alg="ES256", **changes):
            now = int(time.time())
            said = {"iss": "desk", "sub": "desk", "aud": origin, "exp": now + 60, "iat": now, "jti": base64.b64encode(os.urandom(9)).decode(), **changes}
            said = {name: value for name, value in said.items() if value is not None}
            if alg == "none":
                encode = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
                assertion = f"{encode({'alg': 'none'})}.{encode(said)}."
            else:
                assertion = jwt.encode({"alg": alg}, said, signer, algorithms=[alg])
            form = {"grant_type": "authorization_code", "code": "x" * 43, "redirect_uri": "https://desk.example.org/callback", "code_verifier": pkce()[0], "client_assertion_type": kind, "client_assertion": assertion}
            return plain.post(form, {})[1]["error"]

        equal(answer(), "invalid_grant", "error of a good assertion with an unknown code")
        # The public key as the secret of a symmetric algorithm, as in attacks that confuse both.
        shared = OctKey.import_key(public.read_bytes())
        for what, changes in (
            ("key", {"signer": ECKey.generate_key("P-256")}), ("none", {"alg": "none"}), ("shared secret", {"alg": "HS256", "signer": shared}),
            ("audience", {"aud": "https://other.example"}), ("audiences", {"aud": [origin, "https://other.example"]}),
            ("issuer", {"iss": "wiki"}), ("expired", {"exp": int(time.time()) - 60}), ("far", {"exp": int(time.time()) + 7200}), ("no jti", {"jti": None}),
        ):
            equal(answer(**changes), "invalid_client", f"error of {what}")
        equal([answer(jti="once"), answer(jti="once")], ["invalid_grant", "invalid_client"], "errors of one assertion twice")
        equal(answer(sub="wiki", iss="wiki"), "invalid_client", "error of an assertion for a client with a secret")
    with suite.case("keys roll over without a gap: the next one is published before it signs"):
        before = keys()
        equal(len(before), 2, "published keys")
        token = log_in(session())
        rolled = site.ask("service", "roll-key", by=administrator)["key"]
        equal(rolled, before[1]["kid"], "the key that signs")
        after = keys()
        equal([one["kid"] for one in after[:2]], [one["kid"] for one in before], "published keys")
        equal(len(after), 3, "published keys")
        for one in (token, log_in(session())):
            jwt.decode(one["id_token"], KeySet.import_key_set({"keys": after}), algorithms=["ES256"])
        contains(cordon("service", "roll-key", *site.arguments(), *officer.signs(), code=1).stderr, "officer-2 may not authority.change")


def run(suite):
    site = Site(suite).start()
    people = site.people([*PEOPLE, ADMINISTRATOR])
    administrator = people["administrator-4"]
    apache = walk(suite, site)

    def browser(person):
        return Browser(site, apache.cert, person)

    secrets = {}
    for name in ("press", "other"):
        file = suite.folder / f"{name}.secret"
        site.ask(
            *f"service add --id {name} --name {name} --address https://{name}.example.org/ --owner IT --level 1 --role officer".split(),
            *["--redirect", f"https://{name}.example.org/callback", "--secret-out", file], by=administrator,
        )
        secrets[name] = file.read_text().strip()
        equal(file.stat().st_mode & 0o777, 0o600, "mode of the secret")
    client = Client(site, "press", secrets["press"])
    client.other_secret = secrets["other"]
    foreign(suite, site, people, apache, browser)
    endings(suite, site, people, apache, browser)
    chromium(suite, site, people, apache)
    refusals(suite, site, people, browser, client)
    authlib(suite, site, people, browser, suite.folder)
    with suite.case("the log verifies, and no secret is in it, in the databases or in the log of the program"):
        site.stop()
        site.verify_audit()
        for file in [*site.data.rglob("*"), site.log]:
            if file.is_file():
                content = file.read_bytes()
                assert not any(secret.encode() in content for secret in secrets.values()), file


if __name__ == "__main__":
    sys.exit(main([sys.modules[__name__]]))
