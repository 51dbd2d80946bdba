package proxy

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
	"github.com/weirgo/weir/httplimit"
)

func TestThePageInARealBrowser(t *testing.T) {
	cfg := config(t, "3/1d", "daily=100/2d")
	cfg.Trust = loopback
	s := serve(t, cfg)
	ask := func(caller string) int { return status(t, "GET", s.front.URL, "X-Forwarded-For", caller) }
	page := browsertest.Open(t)

	for range 3 {
		require.Equal(t, 200, ask("192.0.2.1"))
	}
	require.Equal(t, 429, ask("192.0.2.1"))
	s.meter.Tick()
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	page.Sees(`document.getElementById("state").textContent.startsWith("up for")`)
	page.Sees(`document.getElementById("rate").textContent === "4" && document.getElementById("denied").textContent === "25 %"`)
	page.Sees(`document.querySelectorAll(".tiles [data-state='warn']").length === 1`)
	page.Sees(`document.querySelector("#busiest tbody tr").textContent === "192.0.2.14denywhy100 %25 %11"`)
	page.Sees(`document.querySelectorAll("#chart rect.a").length === 1 && ` +
		`document.querySelectorAll("#chart ` +
		`rect.d").length === 1`)
	page.Sees(
		`document.getElementById("totals").textContent === "3 admitted and 1 denied since the start"`,
	)
	page.Sees(`document.getElementById("undecided").textContent === "0"`)
	page.Sees(
		`document.getElementById("undecided-of").textContent === "not decided: no key, or the limiter ` +
			`failed"`,
	)
	require.Equal(t, 400, ask("nobody"))
	page.Sees(
		`document.getElementById("undecided-of").textContent.startsWith("not decided: 1 without a ` +
			`key, 0 refused")`,
	)
	page.Sees(`document.querySelectorAll("#limits tbody tr").length === 2`)
	page.Sees(`document.querySelector("#worst tbody td").textContent === "192.0.2.1"`)

	// Add an entry, see the caller refused, remove it, see it admitted.
	require.Equal(t, 200, ask("198.51.100.7"))
	page.Do(chromedp.SendKeys("#deny-what", "198.51.100.0/24"), chromedp.Click("#deny button"))
	page.Sees(`document.getElementById("deny-error").textContent.endsWith(` +
		`"callers of the last minute. Type 1 to deny it all the same.")`)
	assert.Zero(t, s.denied.Len())
	page.Do(chromedp.SendKeys("#confirm-number", "1"), chromedp.Click("#confirm button"))
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "198.51.100.0/24"`)
	assert.Equal(t, 429, ask("198.51.100.7"), "it is on the list, for ten minutes")
	page.Do(chromedp.Click("#list tbody button"))
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 0`)
	assert.Equal(t, 200, ask("198.51.100.7"))

	// Deny one of the worst callers by a click. Of the others it would be a third.
	for i := range 3 {
		require.Equal(t, 200, ask(fmt.Sprintf("198.51.100.%d", i)))
	}
	deny := chromedp.Click("#worst tbody button")
	page.Do(deny, chromedp.Click("#ask-no"))
	page.Do(deny)
	assert.Equal(t, "Deny 192.0.2.1 for 10 minutes?",
		browsertest.Eval[string](page, `document.getElementById("ask-what").textContent`))
	assert.Zero(t, s.denied.Len(), "it was asked twice, and not answered yes")
	page.Do(chromedp.Click("#ask-yes"))
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "192.0.2.1"`)
	page.Sees(`document.querySelector("#worst tbody td:nth-child(3)").textContent === "listed"`)
	assert.Equal(t, 1, s.denied.Len())
	assert.Equal(t, 429, ask("192.0.2.1"))
	page.Sees(`[...document.querySelectorAll("#list tbody td")].slice(2, 4).map((td) => td.textContent).join(" ") === "key, by hand 1"`)

	// Undo it, deny it again, and see why it is denied.
	page.Do(chromedp.Click("#undo-do"))
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 0 && document.getElementById("undo").hidden`)
	assert.Zero(t, s.denied.Len())
	page.Sees(`document.querySelector("#worst tbody td:nth-child(3)").textContent === "deny"`)
	page.Do(deny, chromedp.Click("#ask-yes"))
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "192.0.2.1"`)
	page.Do(chromedp.Click("#worst tbody td:nth-child(4) button"))
	page.Sees(`document.getElementById("because-said").textContent.startsWith("is refused: the deny list has it; deny list: key 192.0.2.1, by hand, for another ")`)
	page.Sees(`document.querySelectorAll("#holds tbody tr").length === 2 && document.querySelectorAll("#lately tbody tr").length > 1`)
	page.Do(chromedp.SetValue("#why-what", "203.0.113.77"), chromedp.Click("#why button"))
	page.Sees(`document.getElementById("because-said").textContent === "passes."`)
	page.Do(chromedp.SetValue("#why-what", "300.0.113.77"), chromedp.Click("#why button"))
	page.Sees(`document.getElementById("why-error").textContent.includes("300.0.113.77") && document.getElementById("because").hidden`)
	page.Do(chromedp.Click("#list tbody button"))
	page.Sees(`document.querySelectorAll("#list tbody tr").length === 0`)

	// An invalid entry is reported, and a hostile name is shown as text.
	page.Do(chromedp.SetValue("#deny-what", " "), chromedp.Click("#deny button"))
	page.Sees(`!document.getElementById("deny-error").hidden && ` +
		`document.getElementById("deny-error").textContent !== ""`)
	hostile := `<img src=x onerror="document.title='forged'">`
	page.Do(chromedp.SetValue("#deny-what", hostile), chromedp.Click("#deny button"))
	page.Sees(`document.querySelector("#list tbody td")?.textContent.startsWith("<img src=x")`)
	assert.Equal(t, "weir proxy", browsertest.Eval[string](page, "document.title"))
	assert.Zero(t, browsertest.Eval[int](page, `document.querySelectorAll("img").length`))
}

// Undo restores the entry that a denial has replaced, also one that the page does not show.
func TestUndoRestoresAnEntryThatIsNotShown(t *testing.T) {
	s := serve(t, config(t, "100/1d"))
	for i := range 2 * listedShown {
		require.NoError(t, s.denied.Add(httplimit.DenyEntry{Key: fmt.Sprintf("key-%03d", i)}))
	}
	until := func() time.Time {
		e, ok := s.denied.Lookup("key-300", netip.Addr{})
		require.True(t, ok)
		return e.Until
	}
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	page.Sees(`document.querySelectorAll("#list tbody tr").length === ` + fmt.Sprint(listedShown))
	page.Do(chromedp.SetValue("#deny-what", "key-300"), chromedp.Click("#deny button"))
	page.Sees(`!document.getElementById("undo").hidden`)
	require.False(t, until().IsZero())
	page.Do(chromedp.Click("#undo-do"))
	assert.Eventually(t, func() bool { return until().IsZero() }, 20*time.Second, 10*time.Millisecond)
}

// The offer to undo lapses, but not while somebody is about to take it.
func TestTheOfferToUndoStaysWhileItHasTheFocus(t *testing.T) {
	s := serve(t, config(t, "100/1d"))
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	browsertest.Eval[bool](page, `window.later = setTimeout, window.setTimeout = (f, ms) =>
		ms === UNDO_MS ? (window.lapse = f, 0) : later(f, ms), true`)
	page.Do(chromedp.SetValue("#deny-what", "key-1"), chromedp.Click("#deny button"))
	shown := func(then string) bool {
		return browsertest.Eval[bool](page, then+`, lapse(), !document.getElementById("undo").hidden`)
	}
	page.Sees(`!document.getElementById("undo").hidden`)
	assert.True(t, shown(`document.getElementById("undo-do").focus()`))
	assert.False(t, shown(`document.getElementById("deny-what").focus()`))
	assert.Equal(t, 1, s.denied.Len())
}

// TestTheDenyBoxAsksBeforeItStopsMany types entries that stop everybody, and some that stop nobody
// since they are no addresses.
func TestTheDenyBoxAsksBeforeItStopsMany(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Trust = loopback
	s := serve(t, cfg)
	for i := range 8 {
		from := fmt.Sprintf("192.0.2.%d", i)
		require.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", from))
	}
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	page.Sees(`document.getElementById("state").textContent.startsWith("up for")`)
	deny := func(what string) {
		page.Do(chromedp.SetValue("#deny-what", what), chromedp.Click("#deny button"))
	}
	says := func(text string) {
		page.Sees(fmt.Sprintf(`!document.getElementById("deny-error").hidden && `+
			`document.getElementById("deny-error").textContent.includes(%q)`, text))
	}
	for _, what := range []string{"300.1.1.1", "not an ip/99", "10.0.0.0/33"} {
		deny(what)
		says("if it is a key, write key:" + what)
	}
	for what, text := range map[string]string{
		"0.0.0.0/0":    "0.0.0.0/0 would stop 8 of the 8 callers of the last minute",
		"192.0.2.0/29": "8 of the 8 callers of the last minute. Type 8 to deny it all the same.",
		"::/0":         "::/0 would stop more than a quarter of all addresses. Type 1",
		"127.0.0.1":    "127.0.0.1/32 would stop you, at 127.0.0.1. Type 1",
	} {
		deny(what)
		says(text)
		assert.Equal(t, "confirm-number", browsertest.Eval[string](page, "document.activeElement.id"))
		page.Do(chromedp.SendKeys("#confirm-number", "7"), chromedp.Click("#confirm button"))
		page.Do(chromedp.Click("#confirm-cancel"))
		page.Sees(`document.getElementById("confirm").hidden && document.getElementById("deny-error").hidden`)
		assert.Zero(t, s.denied.Len(), what)
	}
	deny("192.0.2.0/30")
	says("Type 4 to deny")
	page.Do(chromedp.SendKeys("#confirm-number", "4"), chromedp.Click("#confirm button"))
	page.Sees(`document.querySelector("#list tbody td")?.textContent === "192.0.2.0/30"`)
	assert.True(t, browsertest.Eval[bool](page, `document.getElementById("confirm").hidden`))
	deny("key:300.1.1.1")
	page.Sees(`document.querySelectorAll("#list tbody td.name")[1]?.textContent === "300.1.1.1"`)
	assert.Equal(t, []httplimit.DenyEntry{{Key: "300.1.1.1"}}, keysOf(s.denied.Entries()))
}

// keysOf returns the entries with a key, without their ends.
func keysOf(entries []httplimit.DenyEntry) (keys []httplimit.DenyEntry) {
	for _, e := range entries {
		if e.Key != "" {
			keys = append(keys, httplimit.DenyEntry{Key: e.Key})
		}
	}
	return keys
}

// The horizontal axis is as long as the history, of which there is little after the start.
func TestTheAxisFitsTheHistory(t *testing.T) {
	s := serve(t, config(t, "3/1d"))
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate(s.back.URL + "/-/"))
	page.Sees(`document.getElementById("state").textContent.startsWith("up for")`)
	for seconds, want := range map[int]string{
		0:   "The last 30 seconds: −30 s, −20 s, −10 s, now",
		20:  "The last 30 seconds: −30 s, −20 s, −10 s, now",
		31:  "The last minute: −1 min, −40 s, −20 s, now",
		61:  "The last two minutes: −2 min, −90 s, −1 min, −30 s, now",
		180: "The last three minutes: −3 min, −2 min, −1 min, now",
	} {
		got := browsertest.Eval[string](page, fmt.Sprintf(`chart({ admitted: Array(%[1]d).fill(1), denied: Array(%[1]d).fill(0) }),
			document.getElementById("history").textContent + ": " + [...document.querySelectorAll("#chart text")]
				.slice(3).map((label) => label.textContent).join(", ")`, seconds))
		assert.Equal(t, want, got)
		assert.Equal(t, seconds, browsertest.Eval[int](page, `document.querySelectorAll("#chart rect").length`))
	}
}

func TestTheBuiltInPageInARealBrowser(t *testing.T) {
	s := serve(t, config(t, "5/1d"))
	page := browsertest.Open(t)
	page.Do(chromedp.Navigate(s.front.URL), chromedp.Click("#many"))
	page.Sees(`document.querySelectorAll("#dots i").length === 10`)
	assert.Equal(t, 4, browsertest.Eval[int](page, `document.querySelectorAll("#dots i.ok").length`),
		"to load the page took one")
	assert.Equal(t, 6, browsertest.Eval[int](page, `document.querySelectorAll("#dots i.no").length`))
	told := browsertest.Eval[string](page, `document.getElementById("told").textContent`)
	assert.Contains(t, told, "429")
	assert.Contains(t, told, "retry-after")
}
