package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// crowd is a proxy whose callers are denied so that the order of the worst of them, who are the
// busiest, changes all the time, and its page in a browser.
type crowd struct {
	served
	browsertest.Tab
	table   string  // that is looked at
	denials [60]int // by caller
}

func newCrowd(t *testing.T, table string) *crowd {
	t.Helper()
	cfg := config(t, "1/1d")
	cfg.Trust = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	c := &crowd{served: serve(t, cfg), Tab: browsertest.Open(t), table: table}
	c.churn() // the first request of each is admitted
	c.churn()
	c.Do(chromedp.Navigate(c.back.URL + "/-/"))
	c.Sees(`document.querySelectorAll("#` + table + ` tbody tr").length === 20`)
	browsertest.Eval[bool](c.Tab, `document.getElementById("`+table+`").scrollIntoView(), true`)
	return c
}

// churn sends a request of each caller, and makes five of them the worst.
func (c *crowd) churn() {
	send := func(i int) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))
		c.handler.ServeHTTP(httptest.NewRecorder(), r)
		c.denials[i]++
	}
	for i := range c.denials {
		send(i)
	}
	for range 5 {
		most, i := slices.Max(c.denials[:]), rand.IntN(len(c.denials))
		for c.denials[i] <= most {
			send(i)
		}
	}
}

// target is a button of the page, and the caller beside it.
type target struct {
	Name string
	X, Y float64
}

// look returns the button of a random caller who is not denied.
func (c *crowd) look() target {
	return browsertest.Eval[target](c.Tab, `(() => {
		document.getElementById("`+c.table+`").scrollIntoView({ block: "nearest" }); // it goes with the row below the pointer
		const seen = [...document.querySelectorAll("#`+c.table+` tbody tr")].filter((row) => {
			const b = row.querySelector("button")?.getBoundingClientRect();
			return b && b.top > 0 && b.bottom < innerHeight && row.querySelector("button").textContent === "deny";
		});
		const row = seen[Math.floor(Math.random() * seen.length)];
		const b = row.querySelector("button").getBoundingClientRect();
		return { Name: row.cells[0].firstChild.textContent, X: b.x + b.width / 2, Y: b.y + b.height / 2 };
	})()`)
}

func (c *crowd) mouse(what input.DispatchMouseEventType, at target) {
	c.Do(chromedp.MouseEvent(what, at.X, at.Y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
}

// leave moves the pointer out of the table, and has the rows sorted.
func (c *crowd) leave() {
	c.mouse(input.DispatchMouseEventTypeMouseMoved, target{X: 3, Y: 3})
	c.sorted()
}

func (c *crowd) sorted() {
	browsertest.Eval[bool](c.Tab, `document.querySelectorAll("tbody").forEach((body) => { body.sorted = -1e9; }), true`)
	c.refresh()
}

// refresh has the page show the newest figures, after the order of the callers has changed.
func (c *crowd) refresh() {
	c.churn()
	_, err := chromedp.Run(c.Context, chromedp.Evaluate[bool](`look().then(() => true)`, chromedp.EvalAwaitPromise))
	require.NoError(c, err)
}

// outcome says what a press on a target did, and takes it back by a press on Undo.
func (c *crowd) outcome(at target) string {
	asked := browsertest.Eval[string](c.Tab, `(() => {
		const asked = document.getElementById("ask").open && document.getElementById("ask-what").textContent;
		if (asked) document.getElementById("ask-yes").click();
		return asked || "";
	})()`)
	c.settle(asked)
	c.refresh()
	entries := c.denied.Entries()
	if asked != "" {
		c.Do(chromedp.Click("#undo-do"))
		require.Eventually(c, func() bool { return c.denied.Len() == 0 }, 20*time.Second, time.Millisecond)
	}
	c.refresh()
	switch {
	case len(entries) == 0:
		return "lost"
	case asked != "Deny "+at.Name+" for 10 minutes?":
		return "wrong"
	case len(entries) == 1 && entries[0].Key == at.Name:
		return "hit"
	}
	return "wrong"
}

// settle waits until the answer to what was asked has changed the list.
func (c *crowd) settle(asked string) {
	if asked != "" {
		c.Sees(`document.getElementById("undo-what").textContent !== "" && !document.getElementById("undo").hidden`)
	}
}

// press looks at a caller, moves the pointer there, presses the button after before, and releases
// it after during.
func (c *crowd) press(before, during func()) string {
	at := c.look()
	c.mouse(input.DispatchMouseEventTypeMouseMoved, at)
	before()
	c.mouse(input.DispatchMouseEventTypeMousePressed, at)
	during()
	c.mouse(input.DispatchMouseEventTypeMouseReleased, at)
	return c.outcome(at)
}

// rebuild makes the page replace all rows each time, as pages do that are written without care.
const rebuild = `fill = (body, items, keyOf, cells) => {
	body.replaceChildren();
	for (const item of items) {
		const row = body.insertRow();
		for (const c of cells(item)) put(row, row.insertCell(), c);
	}
}, true`

// TestAPressDeniesTheCallerThatWasLookedAt presses buttons of a table whose order changes between
// the look and the press, and between the press and the release.
func TestAPressDeniesTheCallerThatWasLookedAt(t *testing.T) {
	for _, table := range []string{"busiest", "worst"} {
		t.Run(table, func(t *testing.T) { pressWhatMoves(t, newCrowd(t, table)) })
	}
}

func pressWhatMoves(t *testing.T, c *crowd) {
	outcomes := make(map[string]int)
	for i := range 15 {
		if i%5 == 4 {
			c.leave()
			browsertest.Eval[bool](c.Tab, `document.querySelectorAll("tr").forEach((row) => { row.moved = -1e9; }), true`)
		}
		outcomes[c.press(c.refresh, c.refresh)]++
	}
	assert.Equal(t, map[string]int{"hit": 15}, outcomes)

	// A finger is nowhere before it presses, and the rows may move: it denies nobody else.
	outcomes = make(map[string]int)
	for range 8 {
		c.leave()
		at := c.look()
		c.sorted()
		c.mouse(input.DispatchMouseEventTypeMousePressed, at)
		c.mouse(input.DispatchMouseEventTypeMouseReleased, at)
		outcomes[c.outcome(at)]++
	}
	assert.Zero(t, outcomes["wrong"], outcomes)

	// The control: the same presses on a page that rebuilds its rows.
	browsertest.Eval[bool](c.Tab, rebuild)
	outcomes = make(map[string]int)
	for range 8 {
		outcomes[c.press(c.refresh, func() {})]++
	}
	assert.NotZero(t, outcomes["wrong"], outcomes)
}

// TestPressesUnderLoad is the same at a person's pace, while the page refreshes itself: a hundred
// times in its full size.
func TestPressesUnderLoad(t *testing.T) {
	slow.Test(t)
	presses := slow.N(0, 25, 100)
	for _, table := range []string{"busiest", "worst"} {
		t.Run(table, func(t *testing.T) {
			c := newCrowd(t, table)
			pause := func(d time.Duration) func() {
				return func() {
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					for ctx.Err() == nil {
						c.churn()
					}
				}
			}
			outcomes := make(map[string]int)
			for range presses {
				outcomes[c.press(pause(800*time.Millisecond), pause(100*time.Millisecond))]++
			}
			assert.Equal(t, map[string]int{"hit": presses}, outcomes)
		})
	}
}

// TestFocusAndSelectionStay refreshes a page whose callers change their order.
func TestFocusAndSelectionStay(t *testing.T) {
	c := newCrowd(t, "worst")
	c.leave()
	browsertest.Eval[bool](c.Tab, `window.was = document.querySelectorAll("#worst tbody tr")[7],
		was.querySelector("button").focus(), true`)
	for i := range 5 {
		c.refresh()
		if i > 2 {
			c.sorted() // the row stays the same one, wherever the others go
		}
		require.True(t, browsertest.Eval[bool](c.Tab, `document.activeElement === was.querySelector("button")`))
	}
	name := browsertest.Eval[string](c.Tab, `was.cells[0].textContent`)
	c.Do(chromedp.KeyEvent("\r"))
	c.Sees(`document.getElementById("ask").open`)
	for range 8 {
		c.sorted() // an open question holds the table as the focus does
	}
	c.Do(chromedp.KeyEvent("\r"))
	denied := func() bool { return c.denied.Len() == 1 }
	require.Eventually(t, denied, 20*time.Second, 10*time.Millisecond)
	assert.Equal(t, name, c.denied.Entries()[0].Key)
	c.Sees(`was.querySelector("button").textContent === "listed"`)
	c.Sees(`document.activeElement === was.querySelector("button")`) // when the question has closed
	for range 8 {
		c.sorted() // more callers come than the table has rows
	}
	assert.LessOrEqual(t, browsertest.Eval[int](c.Tab, `document.querySelectorAll("#worst tbody tr").length`), 40,
		"below the focus")

	browsertest.Eval[bool](c.Tab, `document.activeElement.blur(),
		getSelection().selectAllChildren(document.querySelectorAll("#worst .name")[3]), true`)
	name = browsertest.Eval[string](c.Tab, `getSelection().toString().trim()`)
	require.Contains(t, name, "198.51.100.")
	for range 3 {
		c.sorted()
		require.Equal(t, name, browsertest.Eval[string](c.Tab, `getSelection().toString().trim()`))
	}
}
