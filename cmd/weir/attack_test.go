package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/browsertest"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit/redistest"
)

// TestAnOperatorWithOnlyThePage plays the attack of proofs/attack against a proxy as the README
// starts it, with a limit that nobody is over. Whoever sits before the page finds the loud address,
// the scraper's office and the guessers, and denies the first and the last, within two minutes, by
// the mouse and by keys alone. The honest callers, who gave up before, are served after it.
//
// WEIR_SHOTS=DIRECTORY keeps pictures of the page. WEIR_SCALE=1 sends all requests, not a quarter,
// of callers who wait twice as long.
func TestAnOperatorWithOnlyThePage(t *testing.T) {
	slow.Test(t)
	upstream := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	proxy := proxyProcess(t, "--upstream", "http://"+upstream, "--limit", "3000/1m",
		"--trust", "127.0.0.1", "--access-log", "off")
	played := playAttack(t, "--upstream", upstream, "--proxy", proxy.front, "--every", "2s")
	for _, newHand := range []func(browsertest.Tab) hand{
		func(page browsertest.Tab) hand { return &mouse{Tab: page} },
		func(page browsertest.Tab) hand { return &keys{browsertest.Keyboard{Tab: page}} },
	} {
		page := browsertest.Open(t)
		hand := newHand(page)
		bad := played.until(t, func(s sight) bool { return s.gaveUp > 5 && s.p50 > 2*time.Second })
		t.Logf("by %s; before: %s", hand.name(), bad)
		page.Do(chromedp.Navigate(proxy.back + "/-/"))
		page.Appear(1200, "light")
		o := &operator{Tab: page, hand: hand, started: time.Now()}
		o.act()
		took := time.Since(o.started) - o.posed
		t.Logf("both are denied after %.0f s and %s", took.Seconds(), hand.count())
		assert.Less(t, took, 2*time.Minute)
		denied := time.Now()
		good := played.until(t, func(s sight) bool { return s.gaveUp == 0 && s.p50 < time.Second })
		t.Logf("%.0f s later: %s", time.Since(denied).Seconds(), good)
		o.shoot("after")
		browsertest.Eval[bool](page, `document.querySelectorAll("#list tbody button").forEach((b) => b.click()), true`)
		o.Sees(`document.querySelectorAll("#list tbody tr:not(.gone)").length === 0`)
	}
	played.stop(t)
	assert.NotContains(t, proxy.stop(t), "level=ERROR")
}

// sight is what an honest caller sees.
type sight struct {
	p50, p99 time.Duration
	gaveUp   float64 // percent
}

func (s sight) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, %.1f %% give up", s.p50, s.p99, s.gaveUp)
}

// played is a running attack.
type played struct {
	*exec.Cmd
	sights chan sight
	rest   sync.WaitGroup
}

// playAttack builds and starts the attack.
func playAttack(t *testing.T, args ...string) *played {
	t.Helper()
	program := filepath.Join(t.TempDir(), "attack")
	out, err := slow.Command(t.Context(), "build", "-o", program, "../../proofs/attack").CombinedOutput()
	require.NoError(t, err, "%s", out)
	args = append(args, "--scale", "0.25", "--patience", "5s")
	if scale := os.Getenv("WEIR_SCALE"); scale != "" {
		args = append(args, "--scale", scale, "--patience", "10s")
	}
	p := &played{Cmd: exec.Command(program, args...), sights: make(chan sight)}
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { // in case it is still running
		_ = p.Process.Kill()
		p.rest.Wait()
	})
	line := regexp.MustCompile(`honest: p50 (\S+), p99 (\S+), (\S+) % gave up`)
	p.rest.Go(func() {
		defer close(p.sights)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			t.Log(lines.Text())
			found := line.FindStringSubmatch(lines.Text())
			if found == nil {
				continue
			}
			var s sight
			s.p50, _ = time.ParseDuration(found[1])
			s.p99, _ = time.ParseDuration(found[2])
			s.gaveUp, _ = strconv.ParseFloat(found[3], 64)
			select {
			case p.sights <- s:
			default: // nobody waits for it
			}
		}
	})
	return p
}

// until waits until honest callers see something.
func (p *played) until(t *testing.T, saw func(sight) bool) sight {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for last := (sight{}); ; {
		select {
		case s, more := <-p.sights:
			require.True(t, more, "the attack has ended")
			if last = s; saw(s) {
				return s
			}
		case <-ctx.Done():
			require.Fail(t, "honest callers still see", last.String())
		}
	}
}

func (p *played) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	p.rest.Wait()
	assert.NoError(t, p.Wait(), "exit 0")
}

// hand presses buttons.
type hand interface {
	name() string
	press(table, row, button string) // the button of the row that begins so
	yes()                            // to a question
	count() string                   // of presses
}

// operator acts on what the page says, and knows nothing else.
type operator struct {
	browsertest.Tab
	hand    hand
	started time.Time
	posed   time.Duration // how long pictures took
}

// says notes a step.
func (o *operator) says(format string, args ...any) {
	o.Helper()
	o.Logf("%4.0f s: "+format, append([]any{(time.Since(o.started) - o.posed).Seconds()}, args...)...)
}

// think lets a person's time pass.
func (o *operator) think() {
	ctx, cancel := context.WithTimeout(o.Context, 1500*time.Millisecond)
	defer cancel()
	<-ctx.Done()
}

// rows returns what a table shows, by the heads of its columns.
func (o *operator) rows(table string) []map[string]string {
	return browsertest.Eval[[]map[string]string](o.Tab, `(() => {
		const table = document.getElementById("`+table+`"), heads = [...table.tHead.rows[0].cells].map((c) => c.textContent);
		return [...table.tBodies[0].rows].map((row) =>
			Object.fromEntries([...row.cells].map((c, i) => [heads[i], c.firstChild.textContent])));
	})()`)
}

// number returns that of a share or a count.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.ReplaceAll(text, ",", ""), " %"), 64)
	return n
}

// most returns the row with the largest number in a column, as the page shows them.
func most(rows []map[string]string, column string) (row map[string]string) {
	for _, r := range rows {
		if row == nil || number(r[column]) > number(row[column]) {
			row = r
		}
	}
	return row
}

// because asks why, and returns what the page says of a caller.
func (o *operator) because(table, caller string) (said string, requests []string) {
	o.hand.press(table, caller, "why")
	o.Sees(fmt.Sprintf(`document.getElementById("because-name").textContent === %q && !document.getElementById("because").hidden`, caller))
	return browsertest.Eval[string](o.Tab, `document.getElementById("because-said").textContent`),
		browsertest.Eval[[]string](o.Tab, `[...document.querySelectorAll("#admitted tbody tr")].map((row) => row.cells[1].textContent + " by " + row.cells[2].textContent)`)
}

// act finds those who do harm, and denies them.
func (o *operator) act() {
	o.Sees(`document.querySelector("#latency-card").dataset.state === "bad"`)
	o.says("%s: %s", browsertest.Eval[string](o.Tab, `document.getElementById("state").textContent`),
		browsertest.Eval[string](o.Tab, `document.getElementById("latency-card").textContent`))
	o.Sees(`document.querySelectorAll("#busiest tbody tr").length >= 20 && document.querySelector("#near tbody tr")`)
	o.shoot("before")

	o.think()
	loud := most(o.rows("busiest"), "upstream's time")
	o.says("%s holds %s of the upstream's time with %s of all requests", loud["caller"], loud["upstream's time"], loud["share"])
	said, requests := o.because("busiest", loud["caller"])
	o.says("it %s %q", said, requests)
	o.shoot("why")
	require.NotEmpty(o, requests)
	assert.Contains(o, requests[0], "GET /export")
	assert.Equal(o, "203.0.113.7", loud["caller"])

	o.think()
	office := most(o.rows("busiest"), "agents")
	o.says("%s has %s agents and asks for %s paths", office["caller"], office["agents"], office["paths"])
	assert.Equal(o, "198.51.100.20", office["caller"])
	_, requests = o.because("busiest", office["caller"])
	o.says("it may be an office: %q", requests)
	assert.Greater(o, number(office["agents"]), 10.)
	assert.Greater(o, number(office["paths"]), 100.)

	o.think()
	o.deny("busiest", loud["caller"])
	o.think()
	near := most(o.rows("near"), "turned away")
	o.says("the %s callers of %s are turned away, %s; %s of them send little", near["callers"], near["prefix"],
		near["turned away"], near["of them quiet"])
	assert.Equal(o, "192.0.2.0/27", near["prefix"])
	assert.GreaterOrEqual(o, number(near["callers"]), 20.)
	o.shoot("denied")
	o.deny("near", near["prefix"])
	o.says("the list has %v", o.rows("list"))
	assert.Len(o, o.rows("list"), 2)
}

// deny denies what a row shows.
func (o *operator) deny(table, name string) {
	o.hand.press(table, name, "deny")
	o.Sees(`document.getElementById("ask").open`)
	asked := browsertest.Eval[string](o.Tab, `document.getElementById("ask-what").textContent`)
	o.says("%s", asked)
	assert.True(o, strings.HasPrefix(asked, "Deny "+name+" for 10 minutes?"), asked)
	o.think()
	o.hand.yes()
	o.Sees(fmt.Sprintf(`[...document.querySelectorAll("#list tbody td.name")].some((td) => td.textContent === %q)`, name))
}

// shoot takes pictures of the page, if they are asked for.
func (o *operator) shoot(what string) {
	dir := os.Getenv("WEIR_SHOTS")
	if dir == "" {
		return
	}
	began := time.Now()
	for _, width := range []int64{390, 1200} {
		for _, scheme := range []string{"dark", "light"} {
			o.Appear(width, scheme)
			o.think() // the page draws once a second
			o.Shoot(filepath.Join(dir, fmt.Sprintf("%s-%s-%d-%s.png", o.hand.name(), what, width, scheme)))
		}
	}
	o.Appear(1200, "light")
	o.posed += time.Since(began)
}

// mouse is a hand that points.
type mouse struct {
	browsertest.Tab
	presses int
}

func (m *mouse) name() string  { return "mouse" }
func (m *mouse) count() string { return fmt.Sprint(m.presses, " presses") }

// place is the middle of something.
type place struct{ X, Y float64 }

// click moves the pointer to what a script finds, and presses. A press on a row that has just moved
// does nothing, and is done again.
func (m *mouse) click(script string) {
	m.Helper()
	for range 5 {
		at := browsertest.Eval[place](m.Tab, `(() => {
			const it = `+script+`;
			it.scrollIntoView({ block: "center" });
			const b = it.getBoundingClientRect();
			return { X: b.x + b.width / 2, Y: b.y + b.height / 2 };
		})()`)
		m.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at.X, at.Y),
			chromedp.MouseClickXY(at.X, at.Y))
		m.presses++
		if !browsertest.Eval[bool](m.Tab, `!document.getElementById("deny-error").hidden && document.getElementById("deny-error").textContent.startsWith("The rows have just moved")`) {
			return
		}
	}
	require.Fail(m, "the rows move all the time")
}

// button is a script that finds one.
func button(table, row, button string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].filter((row) => row.cells[0].firstChild.textContent === %q).flatMap((row) => [...row.querySelectorAll("button")]).find((b) => b.textContent === %q)`, table, row, button)
}

func (m *mouse) press(table, row, what string) { m.click(button(table, row, what)) }
func (m *mouse) yes()                          { m.click(`document.getElementById("ask-yes")`) }

// keys is a hand without a mouse.
type keys struct{ browsertest.Keyboard }

func (k *keys) name() string  { return "keys" }
func (k *keys) count() string { return fmt.Sprint(k.Pressed, " keys") }

func (k *keys) press(table, row, what string) {
	k.Helper()
	for range 100 {
		switch browsertest.Eval[int](k.Tab, `(() => {
			const it = `+button(table, row, what)+`, at = document.activeElement;
			if (it === at) return 0;
			return it.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1;
		})()`) {
		case 0:
			k.Press(kb.Enter)
			return
		case -1:
			k.Back()
		default:
			k.Press(kb.Tab)
		}
	}
	require.Fail(k, "no way to it", "%s of %s", what, row)
}

func (k *keys) yes() {
	k.To("ask-yes")
	k.Press(kb.Enter)
}
