"""The page in a real browser, controlled over pipes: scripts, pointer, keys, and narrow screens."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

from rlrun.cli.report import build

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "about:blank")
COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


class Browser:
    """One page of a headless Chromium, which reads commands from descriptor 3 and answers on 4."""

    def __init__(self) -> None:
        theirs, self.commands = os.pipe()
        answers, answering = os.pipe()
        wiring = ["bash", "-c", f"exec {CHROMIUM} {' '.join(FLAGS)} 3<&{theirs} 4>&{answering}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(wiring, pass_fds=(theirs, answering), **quiet)  # type: ignore[call-overload]
        os.close(theirs)
        os.close(answering)
        self.answers = os.fdopen(answers, "rb")
        self.buffer, self.count, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        (target,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> Any:
        self.count += 1
        command = {"id": self.count, "method": method, "params": given}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while True:
            answer = self._answer()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _answer(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            self.buffer += self.answers.read1(1 << 20)
        answer, _, self.buffer = self.buffer.partition(b"\0")
        return dict(json.loads(answer))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        self.answers.close()

    def value(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, page: Path, width: int = 1200) -> None:
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
        self.call("Page.navigate", url=page.as_uri())
        for _ in range(100):
            if self.value("document.readyState === 'complete' && location.protocol === 'file:'"):
                return
            time.sleep(0.1)
        raise AssertionError("the page does not load")

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)

    @property
    def tip(self) -> str:
        """Returns the text of the tip, or "" while it is hidden."""
        return str(self.value("tip.hidden ? '' : tip.innerText"))

    @property
    def complaints(self) -> list[Any]:
        return [event["params"] for event in self.events if event["method"] in COMPLAINTS]


@pytest.fixture(scope="module")
def page(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    for place, algo in enumerate(("ppo", "sac", "<b>td3</b>")):
        for env in ("CartPole-v1", "An-environment-with-a-rather-long-name-v0"):
            for seed in range(2):
                scores = {step: step / 10 * (3 - place) + seed for step in (100, 200, 300)}
                make_run(folder / f"{place}{env}{seed}", scores, algo=algo, env=env, seed=seed, total=300)
    return build([str(folder)], {}, "rlrun report").write(folder / "report")


@pytest.fixture
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.close()


CURVE = "document.querySelector('[data-reading=\"1\"]')"


def boxes(browser: Browser, selector: str) -> list[list[float]]:
    """Returns left, top, width and height of elements, in pixels."""
    box = "element => (({x, y, width, height}) => [x, y, width, height])(element.getBoundingClientRect())"
    return list(browser.value(f"[...document.querySelectorAll('{selector}')].map({box})"))


def test_plot_readings_by_pointer_and_by_keys_skip_hidden_methods(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.value(f"{CURVE}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    time.sleep(0.5)  # scrolling closes tips when it ends
    ((left, top, width, height),) = boxes(browser, '[data-reading="1"]')
    browser.point(left + width / 2, top + height / 2)
    said = "environment steps: 200\nppo\t60.5\t60 to 61\nsac\t40.5\t40 to 41\n<b>td3</b>\t20.5\t20 to 21"
    assert browser.tip.strip() == said
    browser.value("document.getElementById('m2').click()")
    assert browser.value(f"getComputedStyle({CURVE}.querySelector('.m2')).display") == "none"
    browser.point(left + width / 2, top + height / 2 + 1)
    assert "ppo" in browser.tip and "sac" not in browser.tip
    browser.value(f"{CURVE}.focus()")
    browser.press("Home")
    assert browser.tip.startswith("environment steps: 100\n")
    browser.press("ArrowRight")
    assert browser.tip.startswith("environment steps: 200\n")
    browser.press("Escape")
    assert browser.tip == ""
    browser.value("document.querySelector('.key [type=reset]').click()")
    assert browser.value(f"getComputedStyle({CURVE}.querySelector('.m2')).display") != "none"
    assert browser.complaints == []


def test_page_does_not_scroll_when_a_method_is_hidden(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.value("document.getElementById('runs').scrollIntoView({behavior: 'instant'})")
    place = browser.value("scrollY")
    browser.value("m1.focus({focusVisible: true}); m1.click()")
    time.sleep(0.5)
    assert place > 500 and browser.value("scrollY") == place
    ((_, top, _, height),) = boxes(browser, ".top")
    assert top + height < boxes(browser, "#runs")[0][1] + 52, "the heading, below its padding, is not covered"


def test_no_other_script_runs_under_the_policy(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.value("strange = document.createElement('script'); strange.textContent = 'window.ran = 1'; 0")
    browser.value("document.body.append(strange)")
    browser.value("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 2\">')")
    time.sleep(0.3)
    assert browser.value("typeof window.ran") == "undefined"
    assert any("Content Security Policy" in str(complaint) for complaint in browser.complaints)


def test_a_phone_shows_panels_in_one_column_with_text_of_11_pixels(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    assert browser.value("document.documentElement.scrollWidth") == 390
    assert min(width for _, _, width, _ in boxes(browser, ".plot")) > 250
    assert len({left for left, *_ in boxes(browser, ".panel")}) == 1
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    assert min(browser.value(f"[...document.querySelectorAll('.plot text, td, th, p, li')].map({size})")) >= 11
    labels = boxes(browser, ".plot text")
    assert all(left >= 0 and left + width <= 390 for left, _, width, _ in labels)
    assert browser.complaints == []
