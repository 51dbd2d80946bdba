package live

import (
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/fallback"
)

// Deciding is the source of decisions on a shared limit.
type Deciding struct {
	Limit   string            `json:"limit"`
	Source  string            `json:"source"` // "redis", or without Redis "local", "open" or "closed"
	Breaker string            `json:"breaker"`
	Since   int64             `json:"since"` // ms since the Unix epoch
	Counts  map[string]uint64 `json:"counts"`
}

// DecidingOf returns who decides on each limit of a store, where onFail does without Redis.
func DecidingOf(s *onredis.Store, onFail string) (all []Deciding) {
	for _, h := range s.Hybrids() {
		s := h.Stats()
		d := Deciding{
			Limit:   h.Name,
			Source:  "redis",
			Breaker: s.State.String(),
			Since:   s.Since.UnixMilli(),
			Counts: map[string]uint64{
				"primary": s.Primary, "lease": s.Lease, "denials": s.Denials, "local": s.Local,
				"on_fail": s.OnFail, "outages": s.Opens, "probes": s.Probes, "failures": s.Failures,
				"carried_back": s.Reconciled, "dropped": s.Dropped,
			},
		}
		if s.State != fallback.Closed {
			d.Source = onFail
		}
		all = append(all, d)
	}
	return all
}
