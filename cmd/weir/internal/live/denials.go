package live

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/screen"
	"github.com/weirgo/weir/cmd/weir/internal/traffic"
)

// Denials counts the denials of the callers that have most of them, and holds the last ones of all
// callers. It is safe for concurrent use.
//
// The last ones of a caller share their places with those of the callers on the same ring, so one
// that is denied all the time takes them from few others. They take at most 6 MiB.
type Denials struct {
	counts *traffic.Callers
	seed   maphash.Seed
	rings  [256]ring
}

// ring holds the last denials of the callers of one hash.
type ring struct {
	mu   sync.Mutex
	last [latest]denial // guarded by mu
	n    int            // guarded by mu; how many there were
}

type denial struct {
	key, of, limit string
	at             time.Time
}

const (
	latest = 16 // denials that a ring holds

	// Counted is the number of callers whose denials are counted: one with more than a thousandth of
	// all denials is always among them.
	Counted = 1000

	longest    = 240     // of a path, in bytes
	longestKey = 1 << 10 // of which more is left out
)

// NewDenials returns empty Denials.
func NewDenials() *Denials {
	return &Denials{counts: traffic.NewCallers(Counted), seed: maphash.MakeSeed()}
}

// ring returns the ring of a key, and what it has of the key.
func (d *Denials) ring(key string) (*ring, string) {
	key = key[:min(len(key), longestKey)]
	return &d.rings[maphash.String(d.seed, key)%uint64(len(d.rings))], key
}

// Add adds a denial, by a limit, of what of says: Request of a request, for instance.
func (d *Denials) Add(key, of, limit string) {
	now := time.Now()
	r, key := d.ring(key)
	d.counts.Add(traffic.Request{Key: key, Denied: true, At: now})
	last := denial{strings.Clone(key), of, limit, now} // key may be a part of the request
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[r.n%latest] = last
	r.n++
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
	r, key := d.ring(key)
	top, _ := d.Top(Counted)
	for _, o := range top {
		if o.Key == key {
			x.Denials, x.Error = o.N, o.Error
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.n - 1; i >= max(0, r.n-latest); i-- {
		if last := &r.last[i%latest]; last.key == key {
			x.Last = append(x.Last, cli.Denial{At: last.at.UnixMilli(),
				Of: screen.Printable(last.of), Limit: screen.Printable(last.limit)})
		}
	}
	x.Denials = max(x.Denials, uint64(len(x.Last)))
}
