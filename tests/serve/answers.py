"""answers.py PROGRAM - the HTTP side of `lockstep serve`: what is answered, what is refused, growth, removal, many clients."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from runs import Run

SECOND_LOOK = 1.3  # the server looks at its folder once a second


class Server:
    def __init__(self, program, folder, *options):
        self.process = subprocess.Popen([program, "serve", folder, *options], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.fullmatch(r"Live page: http://(\[?[0-9a-f.:]+?\]?):(\d+)/(?:([0-9a-f]{32})/)?\n", line)
        assert found, f"unexpected first line: {line!r}"
        self.host, self.port, self.token = found[1], int(found[2]), found[3]

    def ask(self, path, method="GET", host=None, headers=None):
        """Status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.putrequest(method, path, skip_host=host is not None)
        for name, value in {**({"Host": host} if host else {}), **(headers or {})}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def json(self, path, **values):
        prefix = f"/{self.token}" if self.token else ""
        status, _, body = self.ask(f"{prefix}/api/{path}?{urllib.parse.urlencode(values)}")
        assert status == 200, (path, status, body)
        return json.loads(body)

    def raw(self, data):
        """The first line of the answer to these bytes; '' if the connection is closed without one."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                return connection.recv(4096).split(b"\r\n")[0].decode()
            except TimeoutError:
                raise
            except OSError:  # closed before all was sent
                return ""

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        status = self.process.wait(20)
        self.process.stdout.close()
        return status


def names(answer):
    return [run["name"] for run in answer["runs"]]


def check_page(server):
    for path, kind in [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript"),
                       ("/chart.js", "text/javascript"), ("/panels.js", "text/javascript"), ("/icon.svg", "image/svg")]:
        status, headers, body = server.ask(path)
        assert status == 200 and headers["Content-Type"].startswith(kind) and body, path
        assert "default-src 'none'" in headers["Content-Security-Policy"], path
        assert not re.search(rb"(src|href)=\"(https?:)?//", body), f"{path} loads something from elsewhere"
        again, _, rest = server.ask(path, headers={"If-None-Match": headers["ETag"]})
        assert again == 304 and not rest, path
        status, headers, rest = server.ask(path, "HEAD")
        assert status == 200 and int(headers["Content-Length"]) == len(body) and not rest, path


def check_refusals(server):
    for path in ["/nothing", "/api", "/api/", "/api/nothing", "/run.json"]:
        assert server.ask(path)[0] == 404, path
    for path in ["/..", "/../run.json", "/%2e%2e/run.json", "/api/../../etc/passwd", "/..%2f..%2fetc%2fpasswd"]:
        assert server.ask(path)[0] == 400, path
    for name in ["..", "../a", "a/../b", "/etc", "a/", ".", ""]:
        status, _, body = server.ask("/api/log?" + urllib.parse.urlencode({"run": name}))
        assert status == 400 or json.loads(body) == {"gone": True}, name
    assert server.ask("/api/log")[0] == 400
    assert server.ask("/" + "a" * 2000)[0] == 414
    assert server.ask("/api/log?run=" + "a" * 2000)[0] == 414
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"]:
        status, headers, _ = server.ask("/api/runs", method)
        assert status == 405 and headers["Allow"] == "GET, HEAD", method
    for data in [b"GET /" + b"a" * 1000000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 1000000 + b"\r\n\r\n"]:
        assert re.match(r"HTTP/1.[01] 4\d\d|$", server.raw(data))
    for data in [b"nonsense\r\n\r\n", b"GET\r\n\r\n"]:
        assert not server.raw(data).startswith("HTTP/1.1 2"), data
    assert server.raw(b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n").split()[1] == "405"
    assert server.ask("/")[0] == 200


def check_hosts(server):
    """A page of another site that names its own host 127.0.0.1 reads nothing."""
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:5"]:
        assert server.ask("/api/runs", host=host)[0] == 200, host
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:6060", "", "10.0.0.1"]:
        assert server.ask("/api/runs", headers={"Host": host}, host=host or None)[0] == 403 if host else True, host
    assert server.raw(b"GET /api/runs HTTP/1.0\r\n\r\n").split()[1] == "403"


def check_growth(server, root):
    run = Run(root, "grows", lr=.1)
    run.grow(200)
    time.sleep(SECOND_LOOK)
    first = server.json("runs")
    assert first["all"] and "grows" in names(first)
    row = next(row for row in first["runs"] if row["name"] == "grows")
    assert row["status"] == "running" and row["step"] == 200 and row["test_top1"] > 0 and row["ranks"] == 2
    same = server.json("runs", since=first["version"])
    assert not same["all"] and not same["runs"], same
    series = server.json("series", run="grows", x="step")
    assert series["train"]["loss"]["x"] == list(range(10, 201, 10)) and series["test"]["loss"]["x"] == [100, 200]
    assert series["complete"] is True and series["val"] == {}
    assert server.json("ranks", run="grows")["ranks"][1]["rank"] == 1
    log = server.json("log", run="grows")
    assert log["from"] == 0 and log["text"].startswith("Lockstep") and log["text"].endswith("\n")
    run.append("metrics.jsonl", '{"kind":"train","step":210,"los')  # a line that is being written
    run.append("log.txt", "half a li")
    time.sleep(SECOND_LOOK)
    assert server.json("series", run="grows", x="step")["train"]["loss"]["x"][-1] == 200
    assert server.json("log", run="grows", **{"from": log["next"]})["text"] == ""
    run.append("metrics.jsonl", 's":7.5}\n')
    run.append("log.txt", "ne\n")
    time.sleep(SECOND_LOOK)
    more = server.json("runs", since=first["version"])
    assert not more["all"] and names(more) == ["grows"] and more["runs"][0]["loss"] == 7.5
    loss = server.json("series", run="grows", x="step")["train"]["loss"]
    assert loss["x"][-1] == 210 and loss["y"][-1] == 7.5
    assert server.json("log", run="grows", **{"from": log["next"]})["text"] == "half a line\n"
    assert server.json("log", run="grows", **{"from": 10 ** 12})["from"] == 0
    zoomed = server.json("series", run="grows", x="step", **{"from": 95, "to": 125})["train"]["loss"]["x"]
    assert zoomed == [90, 100, 110, 120, 130], zoomed
    run.rows([{"kind": "val", "step": 210, "epoch": 2.1, "loss": .5, "top1": 81.5, "seconds": 9}])
    run.describe(status="done", ended=time.time())
    time.sleep(SECOND_LOOK)
    row = next(row for row in server.json("runs")["runs"] if row["name"] == "grows")
    assert row["status"] == "done" and row["val_top1"] == 81.5 and row["val_loss"] == .5, row
    assert server.json("run", run="grows")["options"]["lr"] == "0.1"
    return run


def check_removal(server, run):
    version = server.json("runs")["version"]
    run.remove()
    time.sleep(SECOND_LOOK)
    answer = server.json("runs", since=version)
    assert answer["all"] and run.name not in names(answer)
    for path in ["series", "run", "ranks", "log"]:
        assert server.json(path, run=run.name) == {"gone": True}, path


def check_damage(server, root):
    """A folder that cannot be read is shown as such; the others stay."""
    run = Run(root, "damaged")
    with open(run.path("run.json"), "w") as file:
        file.write("{")
    time.sleep(SECOND_LOOK)
    answer = server.json("runs")
    row = next(row for row in answer["runs"] if row["name"] == "damaged")
    assert "run.json" in row["problem"], row
    assert server.json("run", run="damaged") == {}
    run.describe()
    run.grow(100)
    time.sleep(SECOND_LOOK)
    assert "problem" not in next(row for row in server.json("runs")["runs"] if row["name"] == "damaged")
    run.append("metrics.jsonl", "{no row}\n")
    time.sleep(SECOND_LOOK)
    assert "metrics.jsonl" in next(row for row in server.json("runs")["runs"] if row["name"] == "damaged")["problem"]
    assert "metrics.jsonl:12:" in server.json("series", run="damaged")["problem"]
    assert len(server.json("ranks", run="damaged")["ranks"]) == 2 and server.json("log", run="damaged")["text"]
    run.remove()


def check_thinning(server, root):
    """A long curve is short to send, and its spikes are there."""
    run = Run(root, "long")
    spikes = {12345: 1e6, 54321: -1e6, 54322: 5e5}
    with open(run.path("metrics.jsonl"), "w") as file:
        for step in range(1, 200001):
            file.write('{"kind":"train","step":%d,"epoch":%g,"loss":%g,"lr":0.1}\n' % (step, step / 100, spikes.get(step, step % 97)))
    time.sleep(SECOND_LOOK)
    calls, series = 0, {}
    while not series.get("complete"):
        series, calls = server.json("series", run="long", x="step", points=100), calls + 1
        assert calls < 100
    loss = series["train"]["loss"]
    assert len(loss["x"]) <= 202 and loss["x"][0] == 1 and loss["x"][-1] == 200000 and loss["x"] == sorted(loss["x"])
    kept = dict(zip(loss["x"], loss["y"]))
    assert all(kept.get(step) == value for step, value in spikes.items()), "a spike is missing"
    assert len(server.json("series", run="long", x="epoch", points=10 ** 9)["train"]["loss"]["x"]) <= 8002
    run.remove()


def ask(connection, path):
    """Asks once more on a new connection where the server has closed one that was idle, as browsers do."""
    reused = connection.sock is not None
    try:
        connection.request("GET", path)
        return connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
        if not reused:
            raise
    connection.close()
    connection.request("GET", path)
    return connection.getresponse()


def check_crowd(server, root, clients=100, rounds=3):
    """All clients at once get whole answers."""
    run = Run(root, "crowd")
    run.grow(500)
    time.sleep(SECOND_LOOK)
    failures = []
    barrier = threading.Barrier(clients)

    def client():
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
            barrier.wait(60)
            for _ in range(rounds):
                for path in ["/", "/api/runs", "/api/series?run=crowd&x=step", "/api/ranks?run=crowd", "/api/log?run=crowd"]:
                    answer = ask(connection, path)
                    body = answer.read()
                    assert answer.status == 200 and len(body) == int(answer.getheader("Content-Length")), path
                    assert not path.startswith("/api") or json.loads(body)
            connection.close()
        except Exception as error:  # in a thread: reported at the end
            failures.append(repr(error))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    run.remove()


def check_token(program, root):
    """At another address than loopback every request needs the token."""
    server = Server(program, root, "--host", "0.0.0.0", "--port", str(free_port()))
    try:
        assert server.token, "no token"
        wrong = server.token[:-1] + ("0" if server.token[-1] != "0" else "1")
        for path in ["/", "/api/runs", "/page.js", f"/{wrong}/", f"/{server.token}", f"/?token={server.token}",
                     f"/{server.token[:16]}/", f"/{server.token}x/"]:
            assert server.ask(path)[0] == 403, path
        assert server.ask(f"/{server.token}/")[0] == 200
        assert server.ask(f"/{server.token}/api/runs", host="node7.example:1234")[0] == 200
        assert server.ask(f"/{server.token}/../api/runs")[0] == 400
        other = Server(program, root, "--host", "0.0.0.0", "--port", str(free_port()))
        assert other.token != server.token
        other.end()
    finally:
        server.end()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def check_mistakes(program, root, server):
    def refused(*options):
        done = subprocess.run([program, "serve", *options], capture_output=True, text=True, timeout=120)
        assert not done.stdout and done.stderr.count("\n") == 1, done
        return done.returncode, done.stderr
    assert refused()[0] == 2
    status, text = refused(os.path.join(root, "missing"))
    assert status == 2 and "missing" in text and "--log-dir" in text, text
    status, text = refused(root, "--port", str(server.port))
    assert status == 1 and str(server.port) in text, text
    status, text = refused(root, "--host", "no.such.host.invalid")
    assert status == 2 and "no.such.host.invalid" in text, text
    assert refused(root, "--port", "0")[0] == 2


def check_ends(program, root):
    """Signals end the server with status 0; a folder that is one run is shown as one; two servers find two ports."""
    run = Run(root, "alone")
    run.grow(50)
    first, second = Server(program, root), Server(program, run.folder + "/")
    assert first.port != second.port
    assert names(second.json("runs")) == ["alone"] and second.json("series", run="alone", x="step")["train"]["loss"]["x"]
    assert first.end(signal.SIGINT) == 0 and second.end(signal.SIGTERM) == 0
    run.remove()


def main():
    program = sys.argv[1]
    if "not in this build: the live page" in subprocess.run([program, "info"], capture_output=True, text=True).stdout:
        print("SKIPPED: this build is without libmicrohttpd")
        return 77
    with tempfile.TemporaryDirectory() as root:
        server = Server(program, root, "--port", str(free_port()))
        try:
            assert server.token is None and server.host == "127.0.0.1"
            assert server.json("runs")["runs"] == []
            check_page(server)
            check_refusals(server)
            check_hosts(server)
            check_removal(server, check_growth(server, root))
            check_damage(server, root)
            check_thinning(server, root)
            check_crowd(server, root)
            check_mistakes(program, root, server)
        finally:
            server.end()
        check_token(program, root)
        check_ends(program, root)
    print("all checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
