package replay

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
)

// Filter selects the requests to replay and those that count. The zero value selects all.
type Filter struct {
	Since    time.Time // earliest time included; zero means no bound
	Until    time.Time // earliest time excluded; zero means no bound
	Routes   *Routes   // nil means any method and path
	Statuses *Statuses // nil means any status
	CountIf  *Statuses // statuses that count, as in httplimit; nil means all
}

// Routes is a set of methods and paths.
type Routes struct {
	Patterns []string // of a --route of weir proxy
	Match    func(r *http.Request) bool
}

// Statuses is a set of response statuses.
type Statuses struct {
	Text  string // as the user wrote it, such as 401,5xx
	Match func(status int) bool
}

func (f *Filter) matches(e *accesslog.Entry) bool {
	if at := time.Unix(0, e.Start); !f.Since.IsZero() && at.Before(f.Since) ||
		!f.Until.IsZero() && !at.Before(f.Until) {
		return false
	}
	if f.Statuses != nil && !f.Statuses.Match(e.Status) {
		return false
	}
	return f.Routes == nil || f.Routes.Match(&http.Request{Method: string(e.Method), URL: urlOf(e)})
}
