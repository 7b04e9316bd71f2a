"""What the tests of the page do in a browser."""


def wait_while(browser, condition):
    """Until something in the page is over."""
    browser.evaluate(
        f"new Promise((done) => {{ const look = () => {condition} ? setTimeout(look, 20) : done();"
        "look(); })"
    )


def show_tab(browser, name):
    browser.evaluate(f"document.getElementById('tab-{name}').click()")
    browser.settle()
    wait_while(browser, "painting")


def set_input(browser, name, value):
    browser.evaluate(
        f"(() => {{ const input = document.getElementById({name!r}); input.value = {value!r};"
        "for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind)); })()"
    )
    browser.settle()


def text(browser, selector):
    return browser.evaluate(f"document.querySelector({selector!r}).textContent")


def middle(browser, selector):
    """The middle of an element on the screen."""
    return browser.evaluate(
        f"(() => {{ const r = document.querySelector({selector!r}).getBoundingClientRect();"
        "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )


def make_oriented(browser):
    browser.evaluate("if (!state.oriented) byId('oriented').click()")
    browser.settle()
    wait_while(browser, "painting")


def press_preset(browser, name):
    browser.evaluate(
        f"[...byId('presets').children].find((one) => one.textContent === {name!r}).click()"
    )
    browser.settle()
