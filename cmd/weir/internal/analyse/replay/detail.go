package replay

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir/internal/core/arith"
)

// Detail says when and where a caller that is listed made its requests. Times in whole seconds are
// those that a stream spreads.
type Detail struct {
	Routes   []Route   `json:"routes"`  // the Config.Top with the most denials
	Busiest  []Window  `json:"busiest"` // at most maxBusiest, the one with the most requests first
	Timeline *Timeline `json:"-"`       // of at most detailBins bins: the requests, then the denials
}

// Window counts a caller's requests in one window of RuleResult.Window, aligned to the clock.
type Window struct {
	From     time.Time `json:"from"`
	Requests uint64    `json:"requests"`
	Denied   uint64    `json:"denied"`
}

const (
	maxBusiest = 5
	detailBins = 48
)

// watch counts what becomes the Detail of a caller of one row.
type watch struct {
	row      int
	length   time.Duration
	timeline *Timeline
	bin      int
	now      Window
	busiest  []Window
	requests map[uint32]uint64 // by route
	denied   map[uint32]uint64
}

func (w *watch) see(h hit, denied bool) {
	_, into := arith.FloorDiv(h.ns, int64(w.length))
	if at := time.Unix(0, h.ns-into).UTC(); !at.Equal(w.now.From) {
		w.turn()
		w.now = Window{From: at}
	}
	for h.ns >= w.timeline.end(w.bin) {
		w.bin++
	}
	w.now.Requests++
	w.timeline.Rows[0][w.bin]++
	w.requests[h.route]++
	if denied {
		w.now.Denied++
		w.timeline.Rows[1][w.bin]++
		w.denied[h.route]++
	}
}

// turn ends the window.
func (w *watch) turn() {
	if w.now.Requests == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(w.busiest, w.now, func(a, b Window) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), a.From.Compare(b.From))
	})
	w.busiest = slices.Insert(w.busiest, at, w.now)
	w.busiest = w.busiest[:min(len(w.busiest), maxBusiest)]
}

// details decides a second time on the requests of the callers that res lists, and on all others if
// callers share counters, to count what is kept for these few only.
func (r *run) details(res *Result) error {
	watches := make([]map[uint32][]*watch, len(r.parts))
	var finish []func()
	for row := range res.Rules {
		rr := &res.Rules[row]
		for i := range rr.Worst {
			c, n := &rr.Worst[i], len(r.parts)
			w := &watch{row: row, requests: map[uint32]uint64{}, denied: map[uint32]uint64{},
				timeline: newTimeline(r.first.nanoseconds(), r.last.nanoseconds(), 2, detailBins, widths[0])}
			w.length, _ = rr.Window()
			of, number := c.number%n, uint32(c.number/n)
			if watches[of] == nil {
				watches[of] = make(map[uint32][]*watch)
			}
			watches[of][number] = append(watches[of][number], w)
			finish = append(finish, func() {
				w.turn()
				c.number = 0
				c.Detail = &Detail{r.routesOf(func(i int) uint64 { return w.requests[uint32(i)] }, w.denied),
					w.busiest, w.timeline}
			})
		}
	}
	var all errgroup.Group
	for i, p := range r.parts {
		if watches[i] == nil {
			continue
		}
		again := &part{spool: p.spool, callers: p.callers, watches: watches[i],
			shared: r.cfg.RuleSets != nil}
		all.Go(func() error {
			defer again.close()
			if err := r.prepare(again, i); err != nil {
				return err
			}
			return again.decide(func(int) {})
		})
	}
	err := all.Wait()
	for _, f := range finish {
		f()
	}
	return err
}
