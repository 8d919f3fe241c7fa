"""What other pages, and requests made by hand, get from the server: nothing."""

import http.client
import json
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

from stepwell.explorer import _server


def ask(server, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.address).port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in named)
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace"), dict(answer.getheaders())
    finally:
        connection.close()


PATHS = ["/", "/ws", "/page/main.js", "/bokeh/bokeh.min.js", "/alive", "/runs", "/figures", "/download/csv", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_other_hosts_and_sites_are_refused(server, path: str):
    port = urlsplit(server.address).port
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": f"http://127.0.0.1:{(port or 0) + 1}"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
    ):
        status, text, _ = ask(server, path, **headers)
        assert status == 403 and text.startswith("This server answers to its own"), headers


def test_a_link_elsewhere_may_open_the_page_and_nothing_else(server):
    navigation = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(server, "/?model.scale=0.1", **navigation)[0] == 200
    assert ask(server, "/download/csv", **navigation)[0] == 403
    assert ask(server, "/", **{**navigation, "Sec_Fetch_Dest": "iframe"})[0] == 403
    assert ask(server, "/alive", Host=f"localhost:{urlsplit(server.address).port}")[0] == 200


def test_a_web_socket_of_another_page_is_refused(server):
    wanted = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
    wanted |= {"Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    assert ask(server, "/ws", Origin="http://evil.example", **wanted)[0] == 403
    assert ask(server, "/ws", Host="evil.example", **wanted)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/page/../_server.py",
        "/page/..%2f_server.py",
        "/page/%2e%2e/%2e%2e/_errors.py",
        "/page//etc/passwd",
        "/bokeh/../../__init__.py",
        "/figure/..%2f..%2fsecret.svg",
        "/figure/secret.svg",
        "/figure/%2fetc%2fpasswd.svg",
        "/download/..%2f..%2fetc",
        "/download/exe",
    ],
)
def test_no_path_of_the_file_system_is_read(server, path: str):
    status, text, _ = ask(server, path)
    assert status in (400, 403, 404)
    assert "import" not in text and "root:" not in text and "<svg" not in text


def test_storing_needs_the_token_of_the_page(server):
    for headers in ({}, {"X_Stepwell_Token": ""}, {"X_Stepwell_Token": "guess"}):
        status, text, _ = ask(server, "/store?model.scale=0.1", method="POST", **headers)
        assert status == 403 and "reload" in text
    assert ask(server, "/store?model.scale=0.1")[0] == 405


def test_downloads_of_what_is_not_allowed_say_so(server):
    status, text, _ = ask(server, "/download/csv?model.heads=99&model.scale=nan")
    assert status == 400 and "from 1 to 8" in text and "model.scale" in text
    assert ask(server, "/download/csv?" + "&".join(f"a{n}=1" for n in range(3000)))[0] == 400
    server.store.mkdir(exist_ok=True)  # without a store there are no filters
    status, text, _ = ask(server, "/runs?where=final_loss%3C%3C")
    assert status == 400 and "final_loss" in text


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/page/draw.js%00", "GET", {}, 404),
        ("/page/%00", "GET", {}, 404),
        ("/store", "POST", {"X_Stepwell_Token": "é", "Content_Length": "0"}, 403),
        ("/", "GET", {"Origin": "http://["}, 403),
        ("/ws", "GET", {"Origin": "http://[::1"}, 403),
        ("/download/toml?seed=" + "1" * 400, "GET", {}, 400),
        ("/download/toml?model.heads=" + "1" * 400, "GET", {}, 400),
        ("/runs?where=seed%3C" + "1" * 400, "GET", {}, 200),
    ],
)
def test_odd_requests_get_an_answer_that_is_no_failure(server, path: str, method: str, headers, status: int):
    found, text, _ = ask(server, path, method, **headers)
    assert found == status and text


def test_every_answer_forbids_what_is_not_needed(server):
    for path in ("/", "/page/main.js", "/alive", "/nothing"):
        _, _, headers = ask(server, path)
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "script-src 'self' 'unsafe-inline'" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
    figure = ask(server, "/figure/linear-fig1.svg")
    assert figure[0] == 200 and figure[2]["Content-Security-Policy"].startswith("default-src 'none'")


def test_one_page_too_many_is_refused():
    guard = _server._Guarded([], {"127.0.0.1:1"}, lambda: _server.MOST_SESSIONS)

    def refusal(path: str) -> tuple[int, str] | None:
        line, headers = RequestStartLine("GET", path, "HTTP/1.1"), HTTPHeaders({"Host": "127.0.0.1:1"})
        return guard._refusal(HTTPServerRequest(start_line=line, headers=headers, connection=Mock()))

    for path in ("/", "/ws"):
        refused = refusal(path)
        assert refused is not None and refused[0] == 503
    assert refusal("/alive") is None


def test_a_script_that_is_not_of_the_page_does_not_run(server, browser):
    page = browser.new_page()
    page.goto(server.address)
    refused = page.evaluate(
        """() => new Promise(done => {
            addEventListener("securitypolicyviolation", event => done(event.effectiveDirective));
            const made = document.createElement("div");
            made.setAttribute("onclick", "window.broken = true");
            document.body.append(made);
            made.click();
            setTimeout(() => done("none"), 1000);
        })"""
    )
    assert refused == "script-src-attr" and page.evaluate("window.broken") is None
    page.close()


def test_words_of_a_foreign_reproduction_are_shown_as_they_are(server, open_page):
    bad = "<img src=x onerror='window.broken = true'><script>window.broken = true</script>"
    figure = {"name": "linear/fig1", "title": bad, "caption": bad}
    claim = {"paper": "linear", "figure": "fig1", "statement": bad, "passed": True}
    claims = server.reproduction / "claims.json"
    claims.write_text(json.dumps({"figures": [figure], "claims": [claim]}))
    try:
        page = open_page("?mode=stored&figure=linear-fig1")
        page.wait_for_selector("#figure-claims li")
        for place in ("#title-figure", "#figure-caption"):
            assert page.text_content(place) == bad
        assert page.text_content("#figure-claims li") == f"✓ holds: {bad}"
        assert page.locator("#figures [onerror], #figures script").count() == 0
        assert page.evaluate("window.broken") is None
    finally:
        claims.unlink()
