package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
)

// keyboard is a page that is used by keys alone.
type keyboard struct{ browsertest.Tab }

// focused returns what has the focus: its id, or its text and the id of the table around it.
func (k keyboard) focused() string {
	return browsertest.Eval[string](k.Tab, `(() => {
		const at = document.activeElement;
		return at === document.body ? "" : at.id || (at.closest("[id]")?.id ?? "") + ": " + (at.ariaLabel || at.textContent);
	})()`)
}

// to presses Tab until something has the focus.
func (k keyboard) to(what string) {
	k.Helper()
	var passed []string
	for range 100 {
		if k.focused() == what {
			return
		}
		k.Do(chromedp.KeyEvent(kb.Tab))
		passed = append(passed, k.focused())
	}
	require.Fail(k, "no way to it by Tab", "%s, past %q", what, passed)
}

func (k keyboard) press(keys string) { k.Do(chromedp.KeyEvent(keys)) }

// Every control of the page is reached by Tab, shows that it has the focus, and does what it does
// by keys alone.
func TestThePageByKeyboard(t *testing.T) {
	cfg := config(t, "3/1d", "daily=100/2d")
	cfg.Trust = loopback
	s := serve(t, cfg)
	ask := func(caller string) int { return status(t, "GET", s.front.URL, "X-Forwarded-For", caller) }
	for range 4 {
		ask("192.0.2.1")
	}
	for i := range 8 {
		require.Equal(t, 200, ask(fmt.Sprintf("198.51.100.%d", i)))
	}
	page := keyboard{browsertest.Open(t)}
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	page.Sees(`document.querySelector("#worst tbody td")?.textContent === "192.0.2.1"`)

	// Once around: all that can be clicked can be reached, in the order in which it stands there.
	var stops []string
	for range 100 {
		page.press(kb.Tab)
		at := page.focused()
		if at == "" {
			break
		}
		stops = append(stops, at)
		assert.True(t, browsertest.Eval[bool](page.Tab, `(() => {
			const style = getComputedStyle(document.activeElement);
			return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
		})()`), "the focus on %s is seen", at)
	}
	controls := browsertest.Eval[int](page.Tab, `[...document.querySelectorAll("button, input, select")].filter((e) => e.checkVisibility()).length`)
	assert.Subset(t, stops, []string{"pause", "why-what", "worst: deny", "deny-what", "deny-for"})
	regions := browsertest.Eval[int](page.Tab, `[...document.querySelectorAll("[tabindex='0']")].filter((e) => e.checkVisibility()).length`)
	assert.Len(t, stops, controls+regions, "%q", stops)

	page.to("pause")
	page.press(" ")
	page.Sees(`document.getElementById("pause").getAttribute("aria-pressed") === "true"`)
	page.press(kb.Enter)
	page.Sees(`document.getElementById("pause").getAttribute("aria-pressed") === "false"`)

	page.to("why-what")
	page.press("192.0.2.1" + kb.Enter)
	page.Sees(`document.getElementById("because-said").textContent.startsWith("is denied")`)

	// A question is closed by Escape, and the focus is where it was.
	page.to("worst: deny")
	page.press(kb.Enter)
	page.Sees(`document.getElementById("ask").open`)
	page.press(kb.Escape)
	page.Sees(`!document.getElementById("ask").open`)
	assert.Equal(t, "worst: deny", page.focused())
	assert.Zero(t, s.denied.Len())
	page.press(kb.Enter)
	page.to("ask-yes")
	page.press(kb.Enter)
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "192.0.2.1"`)
	page.to("undo-do")
	page.press(kb.Enter)
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 0`)
	assert.Zero(t, s.denied.Len())

	page.to("deny-what")
	page.press("0.0.0.0/0" + kb.Enter)
	page.Sees(`document.activeElement.id === "confirm-number"`)
	page.to("confirm-cancel")
	page.press(kb.Enter)
	page.Sees(`document.getElementById("confirm").hidden`)
	assert.Zero(t, s.denied.Len())
	page.to("deny-what")
	page.press(kb.End + strings.Repeat(kb.Backspace, len("0.0.0.0/0")))
	page.press("key:ann")
	page.to("deny-for")
	page.press(kb.ArrowDown)
	page.press(kb.Enter)
	page.to("deny: Deny")
	page.press(kb.Enter)
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "ann"`)
	assert.Equal(t, 1, s.denied.Len())
	page.to("list: remove")
	page.press(kb.Enter)
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 0`)
	assert.Zero(t, s.denied.Len())
}
