package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browser starts Chromium, which must be installed. Errors of scripts and violations of the
// Content-Security-Policy fail the test.
func browser(t *testing.T) tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "this test needs chromium: apt-get install chromium")
	options := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 1250),
		chromedp.NoFirstRun, chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
	}, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(allocator)
	t.Cleanup(cancelTab)
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page's script failed: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceSecurity {
				t.Errorf("the page's policy refused something: %s", e.Entry.Text)
			}
		case *runtime.EventConsoleAPICalled:
			t.Errorf("the page says: %s", e.Args[0].Value)
		}
	}))
	bounded, cancelTime := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancelTime)
	return tab{t, bounded}
}

// tab is a page in a browser.
type tab struct {
	testing.TB
	ctx context.Context
}

func (t tab) do(actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(t.ctx, actions...))
}

// eval returns the value of a script.
func eval[T any](t tab, script string) T {
	t.Helper()
	value, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](script))
	require.NoError(t, err, script)
	return value
}

// sees waits until the value of the script is true. chromedp's own Poll evaluates text as code in
// the page, which the page's policy forbids.
func (t tab) sees(script string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return eval[bool](t, "!!("+script+")")
	}, 20*time.Second, 20*time.Millisecond, script)
}

func TestThePageInARealBrowser(t *testing.T) {
	cfg := config(t, "3/1d", "daily=100/2d")
	cfg.Trust = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	s := serve(t, cfg)
	ask := func(caller string) int { return status(t, "GET", s.front.URL, "X-Forwarded-For", caller) }
	page := browser(t)

	for range 3 {
		require.Equal(t, 200, ask("192.0.2.1"))
	}
	require.Equal(t, 429, ask("192.0.2.1"))
	s.meter.tick()
	page.do(chromedp.Navigate(s.back.URL + "/-/"))
	page.sees(`document.getElementById("state").textContent.startsWith("up for")`)
	page.sees(`document.getElementById("admitted-rate").textContent === "3"`)
	page.sees(`document.getElementById("denied-rate").textContent === "1"`)
	page.sees(`document.querySelectorAll("#chart rect.a").length === 1 && ` +
		`document.querySelectorAll("#chart ` +
		`rect.d").length === 1`)
	page.sees(
		`document.getElementById("totals").textContent === "3 admitted and 1 denied since the start"`,
	)
	page.sees(`document.getElementById("undecided").textContent === "0"`)
	page.sees(
		`document.getElementById("undecided-of").textContent === "not decided: no key, or the limiter ` +
			`failed"`,
	)
	require.Equal(t, 400, ask("nobody"))
	page.sees(
		`document.getElementById("undecided-of").textContent.startsWith("not decided: 1 without a ` +
			`key, 0 refused")`,
	)
	page.sees(`document.querySelectorAll("#limits tbody tr").length === 2`)
	page.sees(`document.querySelector("#worst tbody td").textContent === "192.0.2.1"`)

	// Add an entry, see the caller refused, remove it, see it admitted.
	require.Equal(t, 200, ask("198.51.100.7"))
	page.do(chromedp.SendKeys("#deny-what", "198.51.100.0/24"), chromedp.Click("#deny button"))
	page.sees(`document.querySelector("#list tbody td")?.textContent === "198.51.100.0/24"`)
	assert.Equal(t, 429, ask("198.51.100.7"), "it is on the list, for ten minutes")
	page.do(chromedp.Click("#list tbody button"))
	page.sees(`document.querySelectorAll("#list tbody tr").length === 0`)
	assert.Equal(t, 200, ask("198.51.100.7"))

	// Deny one of the worst callers by a click.
	page.do(chromedp.Click("#worst tbody button"))
	page.sees(`document.querySelector("#list tbody td")?.textContent === "192.0.2.1"`)
	page.sees(`document.querySelector("#worst tbody td:last-child").textContent === "listed"`)
	assert.Equal(t, 1, s.denied.Len())
	page.do(chromedp.Click("#list tbody button"))
	page.sees(`document.querySelectorAll("#list tbody tr").length === 0`)

	// An invalid entry is reported, and a hostile name is shown as text.
	page.do(chromedp.SetValue("#deny-what", " "), chromedp.Click("#deny button"))
	page.sees(`!document.getElementById("deny-error").hidden && ` +
		`document.getElementById("deny-error").textContent !== ""`)
	hostile := `<img src=x onerror="document.title='forged'">`
	page.do(chromedp.SetValue("#deny-what", hostile), chromedp.Click("#deny button"))
	page.sees(`document.querySelector("#list tbody td")?.textContent.startsWith("<img src=x")`)
	assert.Equal(t, "weir proxy", eval[string](page, "document.title"))
	assert.Zero(t, eval[int](page, `document.querySelectorAll("img").length`))
}

// The horizontal axis is as long as the history, of which there is little after the start.
func TestTheAxisFitsTheHistory(t *testing.T) {
	s := serve(t, config(t, "3/1d"))
	page := browser(t)
	page.do(chromedp.Navigate(s.back.URL + "/-/"))
	page.sees(`document.getElementById("state").textContent.startsWith("up for")`)
	for seconds, want := range map[int]string{
		0:   "The last 30 seconds: −30 s, −20 s, −10 s, now",
		20:  "The last 30 seconds: −30 s, −20 s, −10 s, now",
		31:  "The last minute: −1 min, −40 s, −20 s, now",
		61:  "The last two minutes: −2 min, −90 s, −1 min, −30 s, now",
		180: "The last three minutes: −3 min, −2 min, −1 min, now",
	} {
		got := eval[string](page, fmt.Sprintf(`chart({ admitted: Array(%[1]d).fill(1), denied: Array(%[1]d).fill(0) }),
			document.getElementById("history").textContent + ": " + [...document.querySelectorAll("#chart text")]
				.slice(3).map((label) => label.textContent).join(", ")`, seconds))
		assert.Equal(t, want, got)
		assert.Equal(t, seconds, eval[int](page, `document.querySelectorAll("#chart rect").length`))
	}
}

func TestTheBuiltInPageInARealBrowser(t *testing.T) {
	s := serve(t, config(t, "5/1d"))
	page := browser(t)
	page.do(chromedp.Navigate(s.front.URL), chromedp.Click("#many"))
	page.sees(`document.querySelectorAll("#dots i").length === 10`)
	assert.Equal(t, 4, eval[int](page, `document.querySelectorAll("#dots i.ok").length`),
		"to load the page took one")
	assert.Equal(t, 6, eval[int](page, `document.querySelectorAll("#dots i.no").length`))
	told := eval[string](page, `document.getElementById("told").textContent`)
	assert.Contains(t, told, "429")
	assert.Contains(t, told, "retry-after")
}
