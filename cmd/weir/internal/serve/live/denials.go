package live

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
)

// Denials counts the denials of the callers that have most of them, and holds the last ones of all
// callers, in at most 6 MiB. It is safe for concurrent use.
type Denials struct {
	counts *traffic.Callers
	last   *traffic.Lately[denial]
}

type denial struct {
	of, limit string
	at        time.Time
}

const (
	latest = 16 // denials of callers of one hash

	// Counted is the number of callers whose denials are counted: one with more than a thousandth of
	// all denials is always among them.
	Counted = 1000

	longest = 240 // of a path, in bytes
)

// NewDenials returns empty Denials.
func NewDenials() *Denials {
	return &Denials{traffic.NewCallers(Counted), traffic.NewLately[denial](latest)}
}

// Add adds a denial, by a limit, of what of says: Request of a request, for instance.
func (d *Denials) Add(key, of, limit string) {
	now := time.Now()
	d.counts.Add(traffic.Request{Key: key, Denied: true, At: now})
	d.last.Add(key, denial{of, limit, now})
}

// Request says what r asks for. It does not retain r, and takes no longer for a long path.
func Request(r *http.Request) string {
	return r.Method[:min(len(r.Method), 16)] + " " + r.URL.Path[:min(len(r.URL.Path), longest)]
}

// Top returns the n callers that were denied most often since the start, and the number of all
// denials.
func (d *Denials) Top(n int) ([]traffic.Caller, uint64) {
	v := d.View(traffic.Start)
	return v.Callers[:min(n, len(v.Callers))], v.Requests
}

// View returns the denials of a window, as the requests of their callers.
func (d *Denials) View(w traffic.Window) traffic.View { return d.counts.View(w, time.Now()) }

// Explain adds the denials of a caller to x.
func (d *Denials) Explain(x *cli.Explained, key string) {
	v := d.View(traffic.Start)
	if of := v.Of(key); of.N > 0 {
		x.Denials, x.Error = of.N, of.Error
	}
	for _, last := range d.last.Of(key) {
		x.Last = append(x.Last, cli.Denial{At: last.at.UnixMilli(),
			Of: screen.Printable(last.of), Limit: screen.Printable(last.limit)})
	}
	x.Denials = max(x.Denials, uint64(len(x.Last)))
}
