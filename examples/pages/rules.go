package pages

import (
	"context"
	"log"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/rules"
)

// Watch is in docs/rules.md.
func Watch(ctx context.Context) *rules.Engine {
	set, err := rules.LoadFiles("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	engine, err := rules.New(set, rules.Config{})
	if err != nil {
		log.Fatal(err)
	}
	go rules.Watch(ctx, []string{"limits.yaml"}, func(set *rules.Set, err error) {
		if err == nil {
			err = engine.Swap(set) // keeps the counters
		}
		if err != nil {
			slog.Error("rules refused; the old ones stay in force", "error", err)
		}
	})
	return engine
}

// Decisions counts the decisions of each rule, as docs/rules.md says.
func Decisions(engine *rules.Engine, limiter *weir.Limiter) *httplimit.Guard {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "limit_decisions_total"},
		[]string{"rule", "code"})
	prometheus.MustRegister(decisions, weirprom.New("", metrics.Limiter(limiter.Stats)))
	decider := rules.Decider{Engine: engine, Domain: "edge"}
	decider.OnResponse = func(_ *http.Request, resp *rules.Response) {
		for _, s := range resp.Statuses {
			if s.Rule != nil {
				decisions.WithLabelValues(s.Rule.Path, s.Code()).Inc()
			}
		}
	}
	guard := rules.NewGuard(decider, httplimit.Config{})
	return guard
}
