package envoy

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/internal/core/throttle"
	"github.com/weirgo/weir/rules"
)

// tally counts decisions.
type tally struct {
	rules    *live.Figures
	ok, over atomic.Uint64
	unknown  atomic.Uint64 // domains
	errors   [4]atomic.Uint64
	denied   *live.Denials

	log    *slog.Logger
	logged throttle.Throttle
}

var errorKinds = [...]string{"request", "full", "canceled", storeError}

func newTally(of *live.Figures, log *slog.Logger) *tally {
	return &tally{rules: of, denied: live.NewDenials(), log: log}
}

// failed counts err and returns its kind. It logs a failure of the store, such as of Redis, at most
// once a second.
func (t *tally) failed(err error) (kind string) {
	kind = errorKind(err)
	t.errors[slices.Index(errorKinds[:], kind)].Add(1)
	if kind == storeError {
		if _, ok := t.logged.Allow(time.Now(), time.Second); ok {
			t.log.Error("cannot decide", "error", err)
		}
	}
	return kind
}

// totals are the decisions since the start.
func (t *tally) totals() (sums live.Sums) {
	sums.Admitted, sums.Denied = t.ok.Load(), t.over.Load()
	for i := range t.errors {
		sums.Failed += t.errors[i].Load()
	}
	return sums
}

// count counts a decision.
func (t *tally) count(req *rules.Request, resp *rules.Response) {
	denied := !resp.Allowed() || resp.Shadowed
	if resp.Allowed() {
		t.ok.Add(1)
	} else {
		t.over.Add(1)
	}
	for i := range resp.Statuses {
		s := &resp.Statuses[i]
		if s.Reason == rules.NoDomain {
			t.unknown.Add(1)
			return
		}
		if s.Reason == rules.Over {
			path := ""
			if s.Rule != nil {
				path = s.Rule.Path
			}
			t.denied.Add(req.Domain+": "+rules.FormatEntries(req.Descriptors[i].Entries), "", path)
		}
		if s.Rule != nil {
			t.countRule(s, hits(req, i), denied)
		}
	}
}

// countRule counts the decision of a rule. It logs a rule that loses costs which are reported
// afterwards.
func (t *tally) countRule(s *rules.Status, hits uint64, denied bool) {
	if t.rules.Count(s, hits, denied) {
		t.log.Warn("a rule is peeked at, and denied reports are not counted in it; if its costs "+
			"are known afterwards, add to its descriptor: metadata: {weir: {costs: afterwards}}",
			"domain", s.Rule.Domain, "rule", s.Rule.Path, "file", s.Rule.File, "line", s.Rule.Line)
	}
}

func hits(req *rules.Request, i int) uint64 {
	if req.Descriptors[i].HasHits {
		return req.Descriptors[i].Hits
	}
	return max(1, req.Hits)
}

const namespace = "ratelimit_service_"

var (
	descHits   = ruleDesc("hits_total", "Hits of a rule.")
	descWithin = ruleDesc("within_limit_total", "Hits within the limit.")
	descNear   = ruleDesc("near_limit_total", "Hits within the limit, over 0.8 of it.")
	descOver   = ruleDesc("over_limit_total", "Hits over the limit, shadowed ones included.")
	descShadow = ruleDesc("shadow_mode_total", "Hits over the limit of a rule in shadow mode.")
	descLost   = ruleDesc("lost_total", "Hits of denied requests on a rule that is peeked at, "+
		"which were not counted.")
	descLimit    = ruleDesc("limit", "Requests per period of a rule.")
	descRequests = desc("requests_total", "Requests decided.", "code")
	descErrors   = desc("should_rate_limit_error_total", "Requests not decided.", "err_type")
	descUnknown  = desc("domain_not_found_total", "Requests for a domain without rules.")
	descRules    = desc("config_rules", "Rules in force, by the hash of their files.", "version")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, labels, nil)
}

func ruleDesc(name, help string) *prometheus.Desc {
	return desc("rate_limit_"+name, help, "domain", "rule")
}

// collect collects the metrics.
func (t *tally) collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for r, f := range t.rules.All() {
		domain, path := clean(r.Domain), clean(r.Path)
		counter(descHits, f.Hits, domain, path)
		counter(descWithin, f.Within, domain, path)
		counter(descNear, f.Near, domain, path)
		counter(descOver, f.Over, domain, path)
		counter(descShadow, f.Shadowed, domain, path)
		counter(descLost, f.Lost, domain, path)
		if !r.Limit.Unlimited {
			ch <- prometheus.MustNewConstMetric(descLimit, prometheus.GaugeValue, float64(r.Limit.Requests),
				domain, path)
		}
	}
	counter(descRequests, t.ok.Load(), code(false).String())
	counter(descRequests, t.over.Load(), code(true).String())
	counter(descUnknown, t.unknown.Load())
	for i, kind := range errorKinds {
		counter(descErrors, t.errors[i].Load(), kind)
	}
}
