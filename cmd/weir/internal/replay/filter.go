package replay

import (
	"bytes"
	"slices"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
)

// Filter says which requests are replayed, and which of those count. The zero value takes all.
type Filter struct {
	Since    time.Time // the first instant; zero: the log's first
	Until    time.Time // the first instant that is too late; zero: none
	Paths    []string  // prefixes, of which a path has one; empty: any path
	Methods  []string  // in capitals; empty: any method
	Statuses *Statuses // nil: any status
	CountIf  *Statuses // as in httplimit: the statuses that count; nil: all do
}

// Statuses are some of the statuses of responses.
type Statuses struct {
	Text  string // as given: 401,5xx
	Match func(status int) bool
}

func (f *Filter) matches(e *accesslog.Entry) bool {
	if !f.Since.IsZero() && e.Start < f.Since.UnixNano() ||
		!f.Until.IsZero() && e.Start >= f.Until.UnixNano() {
		return false
	}
	if f.Statuses != nil && !f.Statuses.Match(e.Status) {
		return false
	}
	if len(f.Methods) > 0 && !slices.Contains(f.Methods, string(e.Method)) {
		return false
	}
	return len(f.Paths) == 0 || slices.ContainsFunc(f.Paths, func(p string) bool {
		return bytes.HasPrefix(e.Path, []byte(p))
	})
}

func (f *Filter) counts(e *accesslog.Entry) bool {
	return f.CountIf == nil || f.CountIf.Match(e.Status)
}

// Active reports whether the filter leaves requests out.
func (f *Filter) Active() bool {
	return !f.Since.IsZero() || !f.Until.IsZero() || len(f.Paths) > 0 || len(f.Methods) > 0 ||
		f.Statuses != nil
}
