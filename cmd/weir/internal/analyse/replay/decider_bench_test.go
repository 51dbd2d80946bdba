package replay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// BenchmarkDecider measures one decision of the deciders without a limiter, on 100,000 callers of
// whom half are denied some requests.
func BenchmarkDecider(b *testing.B) {
	const callers, batch = 100_000, 1 << 16
	rnd := rand.New(rand.NewPCG(7, 7))
	who := make([]uint32, batch)
	for i := range who {
		who[i] = uint32(rnd.IntN(callers))
		if i%2 == 0 {
			who[i] %= callers / 50
		}
	}
	for _, r := range crossed(b, []string{"10/10s"}, rule.Fixed, rule.Sliding, rule.Token,
		rule.Leaky) {
		b.Run("strategy="+r.Strategy, func(b *testing.B) {
			j, err := limitSpec(r, 1, 1).open(nil, callers)
			if err != nil {
				b.Fatal(err)
			}
			ns, all, out, n := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano(), 0, []bool{false}, 0
			b.ReportAllocs()
			for b.Loop() {
				q := hit{caller: who[n%batch], ns: ns}
				ns, n, out[0] = ns+200_000, n+1, false
				if err := j.decide(q, out); err != nil {
					b.Fatal(err)
				}
				if out[0] {
					all++
				}
			}
			if n > 10*batch && (all < n/20 || all > n-n/20) {
				b.Fatal(all, "of", n, "denied")
			}
			b.ReportMetric(float64(all)/float64(n), "denied/op")
		})
	}
}
