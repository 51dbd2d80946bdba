package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
)

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
	page := &browsertest.Keyboard{Tab: browsertest.Open(t)}
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	page.Sees(`document.querySelector("#worst tbody td")?.textContent === "192.0.2.1"`)

	// Once around: all that can be clicked can be reached, in the order in which it stands there.
	var stops []string
	for range 100 {
		page.Press(kb.Tab)
		at := page.Focused()
		if at == "" {
			break
		}
		stops = append(stops, at)
		assert.True(t, browsertest.Eval[bool](page.Tab, `(() => {
			const style = getComputedStyle(document.activeElement);
			return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
		})()`), "the focus on %s is seen", at)
	}
	controls := browsertest.Eval[int](page.Tab, `[...document.querySelectorAll("button, input, select, a[href]")].filter((e) => e.checkVisibility()).length`)
	assert.Subset(t, stops, []string{"pause", "why-what", "worst: deny", "deny-what", "deny-for"})
	regions := browsertest.Eval[int](page.Tab, `[...document.querySelectorAll("[tabindex='0']")].filter((e) => e.checkVisibility()).length`)
	assert.Len(t, stops, controls+regions, "%q", stops)

	page.To("pause")
	page.Press(" ")
	page.Sees(`document.getElementById("pause").getAttribute("aria-pressed") === "true"`)
	page.Press(kb.Enter)
	page.Sees(`document.getElementById("pause").getAttribute("aria-pressed") === "false"`)

	page.To("why-what")
	page.Press("192.0.2.1" + kb.Enter)
	page.Sees(`document.getElementById("because-said").textContent.startsWith("is denied")`)

	// A question is closed by Escape, and the focus is where it was.
	page.To("worst: deny")
	page.Press(kb.Enter)
	page.Sees(`document.getElementById("ask").open`)
	page.Press(kb.Escape)
	page.Sees(`!document.getElementById("ask").open`)
	assert.Equal(t, "worst: deny", page.Focused())
	assert.Zero(t, s.denied.Len())
	page.Press(kb.Enter)
	page.To("ask-yes")
	page.Press(kb.Enter)
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "192.0.2.1"`)
	page.To("undo-do")
	page.Press(kb.Enter)
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 0`)
	assert.Zero(t, s.denied.Len())

	// The shortest way: a link to the part, and Control+Z where the focus is.
	page.Press(kb.Escape)
	browsertest.Eval[bool](page.Tab, `document.getElementById("why-what").focus(), true`)
	page.To(": Worst")
	page.Press(kb.Enter)
	page.Press(kb.Tab)
	assert.True(t, browsertest.Eval[bool](page.Tab, `document.activeElement.closest("#worst-card") !== null`), page.Focused())
	page.To("worst: deny")
	page.Press(kb.Enter)
	page.To("ask-yes")
	page.Press(kb.Enter)
	page.Sees(`!document.getElementById("undo").hidden && document.querySelector("#list tbody tr:not(.gone)")`)
	page.Do(chromedp.KeyEvent("z", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	require.Eventually(t, func() bool { return s.denied.Len() == 0 }, 20*time.Second, time.Millisecond)
	assert.Contains(t, page.Focused(), "worst: ", "the focus stays")

	page.To("deny-what")
	page.Press("0.0.0.0/0" + kb.Enter)
	page.Sees(`document.activeElement.id === "confirm-number"`)
	page.To("confirm-cancel")
	page.Press(kb.Enter)
	page.Sees(`document.getElementById("confirm").hidden`)
	assert.Zero(t, s.denied.Len())
	page.To("deny-what")
	page.Press(kb.End + strings.Repeat(kb.Backspace, len("0.0.0.0/0")))
	page.Press("key:ann")
	page.To("deny-for")
	page.Press(kb.ArrowDown)
	page.Press(kb.Enter)
	page.To("deny: Deny")
	page.Press(kb.Enter)
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "ann"`)
	assert.Equal(t, 1, s.denied.Len())
	page.To("list: remove")
	page.Press(kb.Enter)
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 0`)
	assert.Zero(t, s.denied.Len())
}
