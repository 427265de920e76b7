"""The page of `autodist report` in a real browser, from disk: report_page_test.py AUTODIST [SCREENSHOTS]

Zoom, hover, filters, the steps of a run, both themes, a phone's width, paper, and readers who see
little or nothing (page_rules.py); no complaint on the console, no request to any network, and names
that would be markup stay names. Exit code 77 (skipped) where there is no Chromium.
With a folder for screenshots, two are left there.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import devtools  # noqa: E402
import page_rules  # noqa: E402

PLANTED = "fc</script><script>window.planted = 1</script><img src=x onerror='window.planted = 1'>"
RANKS = 3
STEPS = 12
STEP_US = 12_000
BATCH = 128
RUN_STEPS = 10_000
TRIED = range(5000, 5500)  # under another plan
UNNAMED = range(3)  # of a log that did not say the plan yet
PHONE = 390
SCREEN = 1280
PAPER = 718  # A4 between its margins


def event(rank, track, activity, name, step, start, length):
    return {"name": name, "cat": activity, "ph": "X", "pid": rank, "tid": track, "ts": start, "dur": length,
            "args": {"step": step, "bytes": 4096 if activity == "wire" else 0}}


def trace(stretch):
    """Rank 2 computes longest, and the others wait for what it contributes."""
    events = []
    for rank in range(RANKS):
        events += [{"name": "thread_name", "ph": "M", "pid": rank, "tid": track, "args": {"name": name}}
                   for track, name in ((0, "compute"), (1, "owner"), (5, "wire"))]
    for step in range(STEPS):
        for rank in range(RANKS):
            at = step * STEP_US * stretch
            waits = (0 if rank == 2 else 2500) * stretch
            rows = [("gate", PLANTED, waits)] + [("compute", f"aten::op_{i}", (STEP_US * stretch - waits) / (18 if rank == 2 else 20) * (i % 3 + 0.5))
                                                 for i in range(12)]
            for activity, name, length in rows:
                events.append(event(rank, 0, activity, name, step, at, length))
                at += length
            events.append(event(rank, 5, "wire", "fc1.weight", step, at - 3000, 1800 * stretch))
            events.append(event(rank, 1, "merge", "fc1.weight", step, at - 1000, 400 * stretch))
    return json.dumps({"otherData": {"argv": "planted-secret"}, "traceEvents": events})


def plan_of(step):
    return "found 3" if step in TRIED else "PSLoadBalancing"


def samples_of(step):
    """The last step of an epoch has fewer."""
    return 30 if step % 45 == 44 else BATCH


def log(steps):
    return "".join(json.dumps({"step": step, **({} if step in UNNAMED else {"plan": plan_of(step)}), "loss": 2.3 * math.exp(-step / 2500) + 0.02 * math.sin(step),
                               "step_seconds": samples_of(step) / (900 + 40 * math.sin(step / 9)),
                               "samples": samples_of(step), "samples_per_second": 900 + 40 * math.sin(step / 9),
                               "computing_seconds": 0.011, "waiting_seconds": 0.002}) + "\n" for step in range(steps))


def make_placement(autodist, folder):
    page = folder / "placement.html"
    subprocess.run([autodist, "place", "generated:cells:1", "--devices", "4", "--evaluations", "200", "--report", page],
                   check=True, stdout=subprocess.DEVNULL)
    return page


def make_sweep(autodist, folder):
    printed = subprocess.run([autodist, "simulate", "resnet50", "--cluster", "local:1", "--what-if", "nodes=1..4,bandwidth=10",
                              "--builder", "AllReduce", "--samples-per-epoch", "100000", "--json"],
                             check=True, stdout=subprocess.PIPE).stdout
    (folder / "nodes.json").write_bytes(printed)
    page = folder / "nodes.html"
    subprocess.run([autodist, "report", folder / "nodes.json", "-o", page], check=True, stdout=subprocess.DEVNULL)
    return page


def make_page(autodist, folder):
    (folder / "measured.json").write_text(trace(1.0))
    (folder / "predicted.json").write_text(trace(0.9))
    (folder / "run.jsonl").write_text(log(RUN_STEPS))
    page = folder / "report.html"
    subprocess.run([autodist, "report", folder / "measured.json", folder / "run.jsonl", "resnet50", "--predicted",
                    folder / "predicted.json", "--cluster", "local:3", "--builder", "PSLoadBalancing", "-o", page],
                   check=True, stdout=subprocess.DEVNULL)
    return page


def check_tiles(browser):
    """A step's time and the rate are of one basis: their product is a step's samples."""
    tiles = browser.evaluate("[...document.querySelectorAll('.tile')].map((tile) => [...tile.children].map((each) => each.textContent))")
    values = [(name, value) for name, value, *_ in tiles]
    steps = [value for name, value in values if name == "step, measured"]
    expect(len(steps) == 1, f"one measured step, not {steps}")
    number, unit = steps[0].split()
    seconds = float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}[unit]
    rate = float(dict(values)["samples/s"].replace(",", "").replace("\u202f", ""))
    expect(abs(seconds * rate / BATCH - 1) < 0.01, f"{steps[0]} at {rate} samples/s are not {BATCH} samples")
    of = next(note for name, _, note in tiles if name == "samples/s")
    expect(of == f"median of the run, in batches of {BATCH}, float32", f"samples/s are said to be '{of}'")
    chart = browser.evaluate("document.querySelectorAll('#run .chart h3')[1].textContent")
    expect(chart == f"Samples per second, in batches of {BATCH}, float32", f"the chart's title is '{chart}'")


def check_summary(browser):
    """The verdict says how far off the prediction is and what to do; figures of less weight are smaller."""
    headline, todo = (browser.evaluate(f"document.querySelector('.verdict {part}').textContent") for part in ("h2", ".todo"))
    expect(headline.startswith("Bounded by rank 2") and "% less than predicted" in headline, f"the headline is '{headline}'")
    verdict = browser.evaluate("document.querySelector('.verdict').textContent")
    expect("Most of the difference is in " in verdict, f"the verdict is '{verdict}'")
    expect(todo.startswith("What to do: Look for what else runs on the machine of rank 2"), f"'{todo}'")
    sizes = [float(browser.evaluate(f"parseFloat(getComputedStyle(document.querySelector('{tiles} .value')).fontSize)"))
             for tiles in (".tiles:not(.lesser)", ".tiles.lesser")]
    expect(sizes[0] > 1.2 * sizes[1], f"tiles' figures are {sizes} pixels high")
    chip = browser.evaluate("(() => { const chip = document.querySelector('[data-activity=gate]'); return [chip.textContent, chip.title]; })()")
    expect(chip == ["waiting for a variable", "in traces: gate"], f"the chip is {chip}")


CANVAS = "document.querySelectorAll('#timeline canvas')[1]"  # the measured one
TIP = "(() => { const tip = document.querySelector('.tip'); return tip.hidden ? '' : tip.textContent; })()"


def expect(truth, what):
    if not truth:
        raise AssertionError(what)


def place(browser, expression):
    """The box of an element, after it was scrolled to."""
    browser.evaluate(f"{expression}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    browser.frames()
    return browser.evaluate(f"(() => {{ const b = {expression}.getBoundingClientRect();"
                            " return {x: b.x, y: b.y, width: b.width, height: b.height}; })()")


def check_timeline(browser):
    box = place(browser, CANVAS)
    pixels = f"{CANVAS}.toDataURL()"
    y = box["y"] + 24 + 20 + 8  # the first track, below the axis and the rank's name
    browser.mouse("mouseMoved", box["x"] + 500, y)
    hovered = browser.evaluate(TIP)
    expect("compute" in hovered and "rank 0" in hovered, f"no row under the mouse, but '{hovered}'")
    browser.mouse("mouseMoved", box["x"] + 130, y)
    hovered = browser.evaluate(TIP)
    expect("</script><script>" in hovered and "gate" in hovered, f"the gate's name is '{hovered}'")

    browser.mouse("mouseMoved", box["x"] + 500, 5)
    before = browser.evaluate(pixels)
    browser.mouse("mouseWheel", box["x"] + 500, y, deltaX=0, deltaY=-400, modifiers=2)
    zoomed = browser.evaluate(pixels)
    expect(zoomed != before, "Ctrl and the wheel do not zoom")
    browser.evaluate(f"{CANVAS}.focus()")
    browser.key("+")
    expect(browser.evaluate(pixels) != zoomed, "the key + does not zoom")
    browser.key("0")
    browser.mouse("mouseMoved", box["x"] + 500, 5)
    expect(browser.evaluate(pixels) == before, "the key 0 does not show the step again")
    browser.key("n")
    chosen = browser.evaluate("document.querySelector('.details').textContent")
    expect("rank 0" in chosen, f"the key n chooses nothing: '{chosen}'")

    browser.evaluate("(() => { const field = document.querySelector('#timeline input[type=search]');"
                     " field.value = 'op_3'; field.dispatchEvent(new Event('input')); })()")
    found = browser.evaluate("document.querySelector('#timeline [role=status]').textContent")
    expect(found.startswith(f"{2 * RANKS} rows"), f"the filter finds '{found}'")
    before = browser.evaluate(pixels)
    browser.evaluate("document.querySelector('#timeline [data-activity=compute]').click()")
    browser.frames()
    expect(browser.evaluate(pixels) != before, "an activity cannot be hidden")


def check_rest(browser):
    headline = browser.evaluate("document.querySelector('.verdict h2').textContent")
    expect(headline.startswith("Bounded by rank 2, which computes longest"), f"the verdict is '{headline}'")
    title = browser.evaluate("document.title")
    expect("resnet50" in title, f"the title is '{title}'")
    charts = browser.evaluate("document.querySelectorAll('#run canvas').length")
    expect(charts == 3, f"{charts} charts of the run")
    said = browser.evaluate("document.querySelector('#run .lead').textContent")
    expect("Of 10,000 steps" in said, f"the run is said to be '{said}'")
    rows = "document.querySelectorAll('#plan tbody')[0].rows.length"
    before = browser.evaluate(rows)
    browser.evaluate("(() => { const field = document.querySelector('#plan input[type=search]');"
                     " field.value = 'fc.weight'; field.dispatchEvent(new Event('input')); })()")
    expect(0 < browser.evaluate(rows) < before, "the table of variables does not filter")
    expect(browser.evaluate("window.planted") is None, "a name became a script")
    text = browser.evaluate("document.documentElement.outerHTML")
    expect("planted-secret" not in text, "the page holds what a trace says of its command line")


def check_plan(browser):
    """What was predicted: the builder's row first, with step and memory, and what another choice would cost."""
    heads = browser.evaluate("[...document.querySelectorAll('#plan table')].map((table) => table.tHead.textContent)")
    expect(any("predicted step" in head and "peak memory" in head for head in heads), f"no predictions in {heads}")
    chosen = browser.evaluate("document.querySelector('#plan tr.chosen').textContent")
    expect("PSLoadBalancing (chosen)" in chosen and "ms" in chosen, f"the chosen one is '{chosen}'")
    expect("next best" in heads[0], f"no next best choice in '{heads[0]}'")
    memory = browser.evaluate("document.querySelectorAll('#memory .bar').length")
    expect(memory == RANKS, f"{memory} bars of memory")


CHART = "document.querySelectorAll('#run [role=slider]')[2]"  # of step times
CHOSEN = "document.querySelector('#run .step').textContent"


def click(browser, x, y):
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.mouse(kind, x, y, button="none" if kind == "mouseMoved" else "left", clickCount=1)


def tab_to(browser, expression):
    """By the keyboard alone, from the top."""
    browser.evaluate("document.querySelector('button.theme').focus()")
    for _ in range(80):
        browser.key("Tab", windowsVirtualKeyCode=9, code="Tab")
        if browser.evaluate(f"document.activeElement === {expression}"):
            return
    raise AssertionError(f"the keyboard does not reach {expression}")


def check_steps(browser):
    """A step that is chosen in a chart, by mouse and by keyboard, says its plan, its time and its parts."""
    box = place(browser, CHART)
    for share in (0.25, 0.525, 0.75):
        click(browser, box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        said = browser.evaluate(CHOSEN)
        step = int(said.split()[1].replace(",", ""))
        expect(abs(step - share * RUN_STEPS) < RUN_STEPS / 100, f"a click at {share} chooses '{said}'")
        pointed = browser.evaluate("document.querySelectorAll('#run .u-legend')[2].querySelector('.u-value').textContent")
        expect(pointed == f"{step:,}", f"the mouse is at step {pointed}, and {step} is chosen")
        expect(said.startswith(f"Step {step:,} ran under the plan {plan_of(step)} and took 1"), f"'{said}'")
        expect("computing 11.0 ms, " in said and "waiting for other ranks 2.00 ms, 1." in said and "around it" in said,
               f"the step's parts are '{said}'")
    tab_to(browser, CHART)
    browser.key("Home")
    expect(browser.evaluate(CHOSEN).startswith("Step 0 ran under a plan that the log does not name"), browser.evaluate(CHOSEN))
    spoken = f"{CHART}.getAttribute('aria-valuetext')"
    expect("Step 0 ran" in browser.evaluate(spoken), browser.evaluate(spoken))
    browser.key("ArrowRight")
    expect("Step 0 ran" not in browser.evaluate(CHOSEN), "an arrow key does not move to another step")
    browser.key("End")
    expect(browser.evaluate(CHOSEN).startswith(f"Step {RUN_STEPS - 1:,} ran"), browser.evaluate(CHOSEN))
    shown = "document.querySelector('#run .step p ~ button')"
    expect(browser.evaluate(f"{shown} === null"), "a step that no trace has is said to be in the timeline")
    browser.key("Home")
    button = place(browser, shown)
    click(browser, button["x"] + 5, button["y"] + 5)
    step = browser.evaluate("document.querySelectorAll('#timeline select[aria-label^=Step]')[1].selectedOptions[0].textContent")
    expect(step.startswith("Step 0:"), f"the timeline shows '{step}'")


def check_tables(browser, width):
    """A table that is wider than the screen scrolls inside of its frame, and says so."""
    browser.frames()
    tables = browser.evaluate("[...document.querySelectorAll('.table')].map((box) => ({name: box.getAttribute('aria-label'),"
                              " wide: box.scrollWidth > box.clientWidth, hint: box.parentElement.querySelector('.hint').checkVisibility()}))")
    for table in tables:
        expect(table["wide"] == table["hint"], f"at {width} pixels: {table}")
    wide = [table["name"] for table in tables if table["wide"]]
    expect(bool(wide) == (width == PHONE), f"at {width} pixels {wide} are wider than the screen")
    seen = browser.evaluate("document.documentElement.scrollWidth")
    expect(seen <= width, f"on a screen of {width} pixels the page is {seen} wide")
    if width != PHONE:
        return
    last = "[...document.querySelectorAll('#plan table')[0].tHead.querySelectorAll('th')].pop().getBoundingClientRect().right"
    expect(browser.evaluate(last) > PHONE, "the table's last column is in sight before it was scrolled")
    box = place(browser, "document.querySelector('#plan .table')")
    browser.mouse("mouseWheel", box["x"] + 50, box["y"] + 50, deltaX=2000, deltaY=0)
    end = time.monotonic() + 20
    while browser.evaluate(last) > PHONE and time.monotonic() < end:  # it scrolls smoothly
        time.sleep(0.05)
    expect(browser.evaluate(last) <= PHONE, "the table does not scroll sideways")


def check_ticks(browser, width):
    """The axis of each timeline has its labels, none over another."""
    axes = browser.evaluate("[...document.querySelectorAll('#timeline canvas')].map((canvas) =>"
                            " Object.fromEntries(canvasTexts.filter((each) => each.canvas === canvas && each.y === 12).map((each) => [each.text, each.x])))")
    expect(len(axes) == 2, f"{len(axes)} timelines")
    for axis in axes:
        expect(len(axis) >= (3 if width == PHONE else 6), f"at {width} pixels the ticks are {axis}")
        places = sorted(axis.values())
        expect(all(b - a > 30 for a, b in zip(places, places[1:])), f"ticks over each other: {axis}")


def check_paper(browser):
    """Nothing stays folded away on paper, nothing there is to be clicked, and the ground is light."""
    rows = "document.querySelectorAll('#plan tbody')[0].rows.length"
    before = browser.evaluate(rows)
    browser.evaluate("addEventListener('beforeprint', () => { window.printed = {theme: document.documentElement.dataset.theme, "
                     f"rows: {rows}}}; }})")
    browser.call("Page.printToPDF")
    printed = browser.evaluate("printed")
    variables = browser.evaluate("JSON.parse(document.getElementById('data').textContent).plan.variables.length")
    expect(printed["theme"] == "light" and before < printed["rows"] == variables, f"printed {printed} of {variables} variables")
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.call("Emulation.setDeviceMetricsOverride", width=PAPER, height=1000, deviceScaleFactor=1, mobile=False)
    browser.frames()
    wide = browser.evaluate("document.documentElement.scrollWidth")
    expect(wide <= PAPER, f"on paper of {PAPER} pixels the page is {wide} wide")
    controls = browser.evaluate("[...document.querySelectorAll('nav, button, select, input, .hint')]"
                                ".filter((each) => !each.matches('th button') && each.checkVisibility()).map((each) => each.outerHTML)")
    expect(not controls, f"on paper there are {controls}")
    folded = browser.evaluate("[...document.querySelectorAll('.table, .scroll')].filter((box) => getComputedStyle(box).overflowY !== 'visible').length")
    expect(folded == 0, f"{folded} parts of the page scroll on paper")
    key = browser.evaluate("[...document.querySelectorAll('#timeline .legend')].filter((each) => each.checkVisibility()).map((each) => each.textContent).join()")
    expect("being sent" in key, f"the colours of the timeline are on paper '{key}'")
    step = browser.evaluate("[...document.querySelectorAll('.view .paper')].map((each) => each.checkVisibility() && each.textContent)")
    expect(len(step) == 2 and all(str(each).startswith("Step ") for each in step), f"paper says of the timelines' steps {step}")
    browser.call("Emulation.setEmulatedMedia", media="")
    expect(browser.evaluate(rows) == before, "rows stay unfolded after printing")


def check_readers(browser, page):
    """At both widths and in both themes, with an activity switched off, too."""
    for width in (SCREEN, PHONE):
        for theme in ("light", "dark"):
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            browser.open(page, width, 844, phone=width == PHONE)
            check_ticks(browser, width)
            check_tables(browser, width)
            browser.evaluate("document.querySelector('#timeline [data-activity=gate]').click()")
            browser.frames()
            wrong = page_rules.violations(browser)
            expect(not wrong, f"at {width} pixels, {theme}: {wrong}")


def make_large_page(autodist, folder):
    """Four ranks, 199 variables, each of which every rank waits for, hands over, and gets in every step."""
    events = []
    for rank in range(4):
        for step in range(STEPS):
            for i in range(199):
                at = step * STEP_US + i * STEP_US / 200
                events.append(event(rank, 0, "gate", f"layer.{i}.weight", step, at, 10))
                events.append(event(rank, 0, "compute", f"aten::op_{i}", step, at + 10, 20))
                events.append(event(rank, 5, "wire", f"layer.{i}.weight", step, at, 30))
                events.append(event(rank, 1, "merge", f"layer.{i}.weight", step, at, 15))
    (folder / "large.json").write_text(json.dumps({"traceEvents": events}))
    page = folder / "large.html"
    subprocess.run([autodist, "report", folder / "large.json", "bert-base", "--cluster", "local:4", "--builder",
                    "PSLoadBalancing", "-o", page], check=True, stdout=subprocess.DEVNULL)
    return page


def seconds_to_open(browser, page):
    """Until it is drawn."""
    browser.open(page)
    return browser.evaluate("performance.now()") / 1e3


def check_placement(browser):
    headline = browser.evaluate("document.querySelector('.verdict h2').textContent")
    expect("above the best there can be" in headline or headline.startswith("Optimal"), f"the headline is '{headline}'")
    todo = browser.evaluate("document.querySelector('.verdict .todo').textContent")
    expect(todo.startswith("What to do: "), f"'{todo}'")
    devices = browser.evaluate("document.querySelectorAll('#placement tbody tr').length")
    expect(devices == 4, f"{devices} devices")
    canvas = "document.querySelector('#timeline canvas')"
    box = place(browser, canvas)
    browser.evaluate(f"{canvas}.focus()")
    browser.key("n")
    chosen = browser.evaluate("document.querySelector('.details').textContent")
    expect("accelerator 0, compute" in chosen, f"the key n chooses '{chosen}'")
    expect(box["height"] > 4 * 40, f"the timeline is {box['height']} high")


def check_sweep(browser):
    rows = browser.evaluate("[...document.querySelectorAll('#what-if tbody tr')].map((row) => [...row.cells].map((each) => each.textContent))")
    expect([row[0] for row in rows] == ["1", "2", "4"], f"rows of {[row[0] for row in rows]}")
    expect(rows[0][2] == "100 %", f"the first one's efficiency is {rows[0][2]}")
    tiles = browser.evaluate("document.querySelectorAll('#summary .tile').length")
    expect(tiles == 3, f"{tiles} tiles")
    lead = browser.evaluate("document.querySelector('#what-if .lead').textContent")
    expect("nodes=" in lead, f"'{lead}'")
    bars = browser.evaluate("[...document.querySelectorAll('#what-if .gauge')].filter((each) => each.getBoundingClientRect().width > 1).length")
    expect(bars >= 6, f"{bars} bars")


def check_themes(browser):
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = []
    for theme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        browser.frames()
        expect(browser.evaluate("document.documentElement.dataset.theme") == theme, f"the page does not follow {theme}")
        seen.append(browser.evaluate(ground))
        browser.evaluate("document.querySelector('button.theme').click()")
        expect(browser.evaluate("document.documentElement.dataset.theme") != theme, "the button does not switch")
        browser.evaluate("document.querySelector('button.theme').click()")
    expect(seen[0] != seen[1], "both themes have one ground")


def main():
    program = devtools.find_chromium()
    if program is None:
        print("SKIPPED: no Chromium in PATH (Debian: chromium)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        page = make_page(sys.argv[1], pathlib.Path(folder))
        size = page.stat().st_size
        expect(size < 2_000_000, f"the page has {size} bytes")
        browser = devtools.Browser(program)
        try:
            browser.open(page)
            if len(sys.argv) > 2:
                browser.screenshot(pathlib.Path(sys.argv[2]) / "report.png")
            check_rest(browser)
            check_plan(browser)
            check_tiles(browser)
            check_summary(browser)
            check_timeline(browser)
            check_themes(browser)
            check_steps(browser)
            browser.open(page)
            check_paper(browser)
            page_rules.note_canvas_texts(browser)
            check_readers(browser, page)
            if len(sys.argv) > 2:
                browser.screenshot(pathlib.Path(sys.argv[2]) / "report-phone.png")
            browser.open(make_placement(sys.argv[1], pathlib.Path(folder)))
            check_placement(browser)
            wrong = page_rules.violations(browser)
            expect(not wrong, f"a placement: {wrong}")
            browser.open(make_sweep(sys.argv[1], pathlib.Path(folder)))
            check_sweep(browser)
            wrong = page_rules.violations(browser)
            expect(not wrong, f"what if: {wrong}")
            opened = seconds_to_open(browser, make_large_page(sys.argv[1], pathlib.Path(folder)))
            variables = browser.evaluate("JSON.parse(document.getElementById('data').textContent).plan.variables.length")
            expect(variables >= 199, f"{variables} variables")
            expect(opened < 20, f"the page of four ranks opens after {opened:.1f} s")  # one, where nothing else runs
            expect(not browser.complaints, f"the browser complains: {browser.complaints}")
        finally:
            browser.close()
    print(f"four ranks of {variables} variables: open after {opened:.2f} s")
    print(f"a page of {size} bytes: zoom, hover, filters, steps, both themes, a phone's width, paper and readers"
          + ("" if page_rules.AXE else "; axe-core is not installed"))


main()
