"""page.py PROGRAM PICTURES - the live page in Chromium: it loads, grows with a run, compares ticked runs, survives the
removal of a run, and writes no error to the console. Leaves screenshots in the folder PICTURES."""
import os
import subprocess
import sys
import tempfile
import time

import webdriver
from answers import Server, free_port
from runs import Run

WAIT = 60  # seconds until something must be seen; the page asks every two


def await_true(browser, what, expression, *args):
    end = time.monotonic() + WAIT
    while not browser.script(expression, *args):
        assert time.monotonic() < end, f"not seen: {what}; errors: {browser.errors()}"
        time.sleep(.2)


def shown(browser, selector):
    return browser.script("[...document.querySelectorAll(arguments[0])].filter((e) => e.offsetParent).map((e) => e.innerText)", selector)


def click(browser, selector, index=0):
    browser.script("void document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, index)


def tick(browser, name):
    browser.script("void state.items.get(arguments[0]).box.click()", name)


def points(browser, name, kind="train", column="loss"):
    """How many points of a curve the page has."""
    return browser.script("state.ticked.get(arguments[0])?.series?.[arguments[1]]?.[arguments[2]]?.x.length || 0", name, kind, column)


def colours_drawn(browser, chart=0):
    """Pixels of a chart that are neither clear nor grey, by the hue of its lines."""
    return browser.script("""(() => {
        const canvas = document.querySelectorAll('.chart canvas')[arguments[0]], found = {};
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        for (let i = 0; i < data.length; i += 4) {
            const [r, g, b, a] = data.slice(i, i + 4);
            if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 80) {
                const hue = r > g && r > b ? 'red' : g > b ? 'green' : 'blue';
                found[hue] = (found[hue] || 0) + 1;
            }
        }
        return found;
    })()""", chart)


def check_growth(browser, run):
    await_true(browser, "the curve of the run", "(state.ticked.get(arguments[0])?.series?.train?.loss?.x.length || 0) > 0", run.name)
    before = points(browser, run.name)
    assert colours_drawn(browser), "the first chart is empty"
    run.grow(200)
    await_true(browser, "new points", "(state.ticked.get(arguments[0])?.series?.train?.loss?.x.length || 0) > arguments[1]", run.name, before)
    assert points(browser, run.name) == before + 20 and points(browser, run.name, "test", "top1") > 0
    await_true(browser, "the newest line of the log", f"document.getElementById('log-text').innerText.includes('step {run.step}')")
    await_true(browser, "the ranks' newest row", f"document.getElementById('ranks-at').innerText.includes('{run.step}')")
    ranks = shown(browser, "#ranks tbody tr")
    assert len(ranks) == run.ranks and "node7" in ranks[0] and "%" in ranks[0] and "MB" in ranks[0], ranks


def check_validation(browser, run):
    """Training, validation and test have three kinds of line; a run that ended early says why."""
    run.rows([{"kind": "val", "step": step, "epoch": step / 100, "loss": 1.5 - step / 1000, "top1": 70 + step / 100, "seconds": step * .035}
              for step in range(100, run.step + 1, 100)])
    run.describe(result={"early_stop": {"data": "validation", "epochs_without_better": 3, "best_step": 400, "best_top1": 74}})
    await_true(browser, "the validation curve", "(state.ticked.get(arguments[0])?.series?.val?.loss?.x.length || 0) > 0", run.name)
    styles = browser.script("Object.fromEntries(CHARTS[0].view.lines.map((line) => [line.label, JSON.stringify(STYLES[line.style])]))")
    assert set(styles) == {"train", "validation", "test"} and len(set(styles.values())) == 3, styles
    assert any("val 7" in text for text in shown(browser, "#runs .line")), shown(browser, "#runs .line")
    assert any("no better validation accuracy in 3 epochs" in text for text in shown(browser, "#facts-table tr"))


def check_comparison(browser, first, second):
    tick(browser, second.name)
    await_true(browser, "the second curve", "(state.ticked.get(arguments[0])?.series?.train?.loss?.x.length || 0) > 0", second.name)
    await_true(browser, "two tabs", "document.querySelectorAll('#tabs button').length === 2")
    await_true(browser, "what differs", "document.querySelectorAll('#differs tbody tr').length > 0")
    rows = {row.split("\t")[0].strip(): row.split("\t")[1:] for row in shown(browser, "#differs tbody tr")}
    assert [value.strip() for value in rows["lr"]] == ["0.1", "0.5"], rows
    assert [value.strip() for value in rows["ranks"]] == [str(first.ranks), str(second.ranks)], rows
    assert "batch-size" not in rows, rows
    assert len(colours_drawn(browser)) == 2, "two runs have two colours"
    assert any("lr 0.5" in text for text in shown(browser, "#legend li"))
    click(browser, "#tabs button", 1)
    await_true(browser, "the ranks of the second run", "document.querySelectorAll('#ranks tbody tr').length === arguments[0]", second.ranks)
    await_true(browser, "the GPU's temperature", "document.getElementById('ranks').innerText.includes('°C')")


def check_axes(browser, run):
    click(browser, "input[name=x]", 0)
    await_true(browser, "steps on the axis", "state.axis === 'step' && (state.ticked.get(arguments[0])?.series?.train?.loss?.x[1] || 0) === 20", run.name)
    browser.script("void zoom(55, 125)")
    await_true(browser, "a part of the curve", "state.ticked.get(arguments[0])?.series?.train?.loss?.x.length === 9", run.name)
    click(browser, "#unzoom")
    await_true(browser, "the whole curve", "(state.ticked.get(arguments[0])?.series?.train?.loss?.x.length || 0) > 10", run.name)
    box = browser.script("(({x, y, width, height}) => [x + width / 2, y + height / 2])(document.querySelector('.chart canvas').getBoundingClientRect())")
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    await_true(browser, "the values under the pointer", "document.querySelector('.tip:not([hidden])')?.innerText.includes('step')")
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    click(browser, "input[name=x]", 1)


def check_removal(browser, first, second):
    second.remove()
    await_true(browser, "the removal", "!state.runs.has(arguments[0]) && !state.ticked.has(arguments[0])", second.name)
    assert not any(second.name in text for text in shown(browser, "#runs li"))
    await_true(browser, "the other run's tab", "document.getElementById('differs').hidden && state.focus === arguments[0]", first.name)
    before = points(browser, first.name)
    first.grow(100)
    await_true(browser, "growth after the removal", "(state.ticked.get(arguments[0])?.series?.train?.loss?.x.length || 0) > arguments[1]", first.name, before)


def check_untrusted(browser, root):
    """Texts of files are shown, never run."""
    name = "<img src=x onerror=alert(1)>"
    run = Run(root, name, lr="<b>bold</b>")
    run.describe(model="<script>document.title='broken'</script>", status="failed", error="<i>text</i>")
    run.log("<script>document.title='broken'</script>")
    await_true(browser, "the run with an odd name", "state.runs.has(arguments[0])", name)
    tick(browser, name)
    await_true(browser, "its facts", "(state.ticked.get(arguments[0])?.run?.error || '') === '<i>text</i>'", name)
    assert browser.script("document.title") == "Lockstep" and not browser.script("document.querySelectorAll('main img, nav img, nav b').length")
    run.remove()
    await_true(browser, "its removal", "!state.runs.has(arguments[0])", name)


def check_phone(browser, pictures):
    browser.size(390, 844, phone=True)
    browser.call("POST", browser.session + "/refresh", {})
    await_true(browser, "the page again", "document.querySelectorAll('.chart canvas').length > 0 && state.ticked.size > 0")
    await_true(browser, "its curves", "[...state.ticked.values()].every((ticked) => ticked.series)")
    assert browser.script("document.documentElement.scrollWidth <= window.innerWidth"), "the page is wider than a phone"
    assert not shown(browser, "#runs li"), "the list is closed at first"
    click(browser, "#runs-toggle")
    assert shown(browser, "#runs li")
    click(browser, "#runs-toggle")
    time.sleep(.5)
    browser.picture(os.path.join(pictures, "phone.png"))


def check_training(browser, program, root):
    """The page of a run of two ranks that trains: curves and ranks grow; it ends with the run."""
    line = [program, "train", "--model", "mlp", "-n", "2", "--epochs", "100000", "--log-interval", "1", "--log-dir", root,
            "--serve", str(free_port())]
    run = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        browser.open(run.stderr.readline().split()[-1])
        await_true(browser, "the run that trains", "[...state.runs.values()].some((run) => run.status === 'running' && run.step > 0)")
        name = browser.script("[...state.runs.values()].find((run) => run.status === 'running').name")
        await_true(browser, "its curve", "(state.ticked.get(arguments[0])?.series?.train?.loss?.x.length || 0) > 1", name)
        last = "state.ticked.get(arguments[0]).series.train.loss.x.at(-1)"
        before = browser.script(last, name)
        await_true(browser, "its growth", last + " > arguments[1]", name, before)
        await_true(browser, "its two ranks", "document.querySelectorAll('#ranks tbody tr').length === 2")
        assert "running" in "".join(shown(browser, "#runs .state")) and browser.errors() == []
    finally:
        run.terminate()
        run.wait(60)
        run.stderr.close()
    await_true(browser, "the end of the page", "document.getElementById('link').className === 'lost'")


def check_all(browser, server, root, pictures):
    now = time.time()
    first = Run(root, "20260102-030405_mnist_cnn_lr=0.1", started=now - 60, lr=.1)
    second = Run(root, "20260101-000000_mnist_cnn_lr=0.5", ranks=4, top=98, started=now - 9000, lr=.5)
    first.grow(600)
    second.grow(1200)
    second.describe(status="done", ended=now - 3000, hash="8d1f0c2b9a76e354")
    browser.size(1360, 900)
    browser.open(f"http://127.0.0.1:{server.port}/")
    await_true(browser, "two runs in the list", "document.querySelectorAll('#runs li').length === 2")
    await_true(browser, "the running run ticked", "[...state.ticked.keys()].join() === arguments[0]", first.name)
    check_growth(browser, first)
    check_validation(browser, first)
    check_comparison(browser, first, second)
    check_axes(browser, first)
    time.sleep(.5)
    browser.picture(os.path.join(pictures, "light.png"))
    browser.colors("dark")
    time.sleep(.5)
    browser.picture(os.path.join(pictures, "dark.png"))
    check_phone(browser, pictures)
    browser.colors("light")
    browser.size(1360, 900)
    check_removal(browser, first, second)
    check_untrusted(browser, root)
    assert browser.errors() == []


def main():
    program, pictures = sys.argv[1:3]
    if not webdriver.find():
        print("SKIPPED: no chromium with chromedriver (Debian's chromium and chromium-driver)")
        return 77
    if "not in this build: the live page" in subprocess.run([program, "info"], capture_output=True, text=True).stdout:
        print("SKIPPED: this build is without libmicrohttpd")
        return 77
    os.makedirs(pictures, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = os.path.join(scratch, "runs")
        os.mkdir(root)
        server = Server(program, root, "--port", str(free_port()))
        browser = None
        try:
            browser = webdriver.Browser(scratch)
            check_all(browser, server, root, pictures)
            check_training(browser, program, os.path.join(scratch, "training"))
        finally:
            if browser:
                browser.close()
            server.end()
    print("all checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
