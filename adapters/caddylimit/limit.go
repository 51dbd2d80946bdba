package caddylimit

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/weirgo/weir/internal/core/bounds"
)

// Limit is one limit.
type Limit struct {
	// Name is what clients read in the fields, and part of what is counted: limits of one name and
	// period share budgets, also those of different handlers. Default: made of the limit, such as
	// 100/1m.
	Name string `json:"name,omitempty"`

	// Limit is how many requests of a key are admitted in Period.
	Limit uint64 `json:"limit"`

	// Period is a whole number of milliseconds, up to 365 days.
	Period caddy.Duration `json:"period"`
}

// name returns the Name, or the limit as people write it. It is never left to httplimit, which
// gives a default name on one Strategy only once: a configuration that is loaded again would be the
// second.
func (l Limit) name() string {
	numbers := strconv.FormatUint(l.Limit, 10) + "/" + bounds.Text(time.Duration(l.Period))
	return cmp.Or(l.Name, numbers)
}

// parseLimit reads [NAME=]COUNT/PERIOD.
func parseLimit(text string) (l Limit, err error) {
	name, rest, named := strings.Cut(text, "=")
	switch {
	case !named:
		rest = text
	case name == "":
		return l, fmt.Errorf("limit %q: a name stands before the equals sign", text)
	default:
		l.Name = name
	}
	count, period, ok := strings.Cut(rest, "/")
	if !ok {
		return l, fmt.Errorf("limit %q: want [NAME=]COUNT/PERIOD, such as 100/1m", text)
	}
	l.Limit, err = strconv.ParseUint(count, 10, 63)
	if err != nil || l.Limit == 0 {
		return l, fmt.Errorf("limit %q: %q is not a count from 1", text, count)
	}
	l.Period, err = duration(period)
	if err != nil || !bounds.Duration(time.Duration(l.Period)) {
		return l, fmt.Errorf("limit %q: %q is not a period such as 500ms, 30s, 1h30m or 7d", text, period)
	}
	return l, nil
}
