package weirtest

import (
	"fmt"
	"strings"

	"github.com/weirgo/weir"
)

// expectation is a call that must be made; the zero fields of r match anything.
type expectation struct {
	method string
	r      weir.Request
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
