package weirtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirgo/weir"
)

// expectation is a call that must be made; the zero fields of r match anything.
type expectation struct {
	method string
	r      weir.Request
}

// Expect requires a call of this method ("Run", "Refund", …) with a request like want, whose zero
// fields match anything: weir.Request{} is any request. Two equal expectations require two calls.
// The order does not matter, and calls made before Expect count too. It returns f.
func (f *Fake) Expect(method string, want weir.Request) *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expected = append(f.expected, expectation{method, want})
	return f
}

// Unmet returns which expected calls were not made, and which were, in words. It is empty if all
// were made.
func (f *Fake) Unmet() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := make(map[expectation]int)
	for _, x := range f.expected {
		wanted[x]++
	}
	var missing []string
	for _, x := range f.expected {
		if seen := f.seen(x); seen < wanted[x] {
			missing = append(missing,
				fmt.Sprintf("expected %s, seen %s", x.sentence(wanted[x]), times(seen)))
		}
		delete(wanted, x) // reported once
	}
	if len(missing) == 0 {
		return ""
	}
	return strings.Join(missing, "\n") + "\n" + f.history()
}

// Verify reports [Fake.Unmet] as an error of t, unless it is empty.
func (f *Fake) Verify(t testing.TB) {
	t.Helper()
	if unmet := f.Unmet(); unmet != "" {
		t.Error("weirtest.Fake: " + unmet)
	}
}

// seen returns how many calls x matches. mu is held.
func (f *Fake) seen(x expectation) (n int) {
	for _, c := range f.calls {
		if x.matches(c) {
			n++
		}
	}
	return n
}

// history lists the calls. mu is held.
func (f *Fake) history() string {
	if len(f.calls) == 0 {
		return "there were no calls"
	}
	var b strings.Builder
	b.WriteString("the calls were:")
	for _, c := range f.calls {
		fmt.Fprintf(&b, "\n\t%s of %q%s: ", c.Method, c.Request.Key, details(c.Request))
		switch {
		case c.Err != nil:
			b.WriteString(c.Err.Error())
		case c.Method == "Run" || c.Method == "Peek":
			b.WriteString(c.Result.State.String())
		default:
			b.WriteString("done")
		}
	}
	return b.String()
}

func (x expectation) matches(c Call) bool {
	return x.method == c.Method &&
		(x.r.Key == "" || x.r.Key == c.Request.Key) &&
		(x.r.Limit == 0 || x.r.Limit == c.Request.Limit) &&
		(x.r.Duration == 0 || x.r.Duration == c.Request.Duration) &&
		(x.r.Cost == 0 || x.r.Cost == c.Request.Cost) &&
		(x.r.Meta == "" || x.r.Meta == c.Request.Meta)
}

func (x expectation) sentence(n int) string {
	key := "any key"
	if x.r.Key != "" {
		key = fmt.Sprintf("%q", x.r.Key)
	}
	s := "a " + x.method + " of " + key + details(x.r)
	if n > 1 {
		s += ", " + times(n)
	}
	return s
}

// details returns the fields of r that are set, apart from the key.
func details(r weir.Request) string {
	var b strings.Builder
	if r.Limit != 0 {
		fmt.Fprintf(&b, " limit %d", r.Limit)
	}
	if r.Duration != 0 {
		fmt.Fprintf(&b, " in %v", r.Duration)
	}
	if r.Cost != 0 {
		fmt.Fprintf(&b, " cost %d", r.Cost)
	}
	if r.Meta != "" {
		fmt.Fprintf(&b, " meta %q", r.Meta)
	}
	return b.String()
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
