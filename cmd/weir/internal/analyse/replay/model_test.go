package replay

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// model returns how many requests of one caller a rule denies. It is as simple as possible: for
// each request it looks at all requests admitted before.
func model(r rule.Rule, at []int64) (denied uint64) {
	var admitted []int64
	since := func(from int64) (n int64) {
		for _, t := range admitted {
			if t >= from {
				n++
			}
		}
		return n
	}
	gcd := int64(0)
	for _, t := range r.Tiers {
		for d := int64(t.Duration); d != 0; {
			gcd, d = d, gcd%d
		}
	}
	d, limit := int64(r.Tiers[0].Duration), int64(r.Tiers[0].Limit)
	// of a bucket: the time between two tokens, and when it is full
	step, full := (d-1)/max(limit, 1)+1, int64(-1<<62)
	size := map[bool]int64{true: int64(r.Burst), false: limit}[r.Burst > 0]
	for _, t := range at {
		start := t - (t%d+d)%d
		ok := limit > 0
		switch r.Strategy {
		case rule.Fixed:
			ok = since(start) < limit
		case rule.Sliding:
			left := (start + d - t + 999_999) / 1e6 // in whole milliseconds
			ok = ((since(start-d)-since(start))*left+d/1e6-1)/(d/1e6)+since(start) < limit
		case rule.Log:
			ok = since(t-d+1) < limit
		case rule.Token:
			ok = ok && max(full, t)+step-t <= size*step
		case rule.Leaky:
			ok = ok && max(full, t)-t <= size*step
		case rule.Tiers:
			ok = !slices.ContainsFunc(r.Tiers, func(tier weir.Tier) bool {
				return since(t-(t%gcd+gcd)%gcd+gcd-int64(tier.Duration)) >= int64(tier.Limit)
			})
		}
		if !ok {
			denied++
			continue
		}
		admitted, full = append(admitted, t), max(full, t)+step
	}
	return denied
}

// instantsOf returns the sorted times of each caller's requests, with those of whole seconds
// spread.
func instantsOf(requests []request, key func(request) string, coarse bool) map[string][]int64 {
	out := map[string][]int64{}
	for _, r := range requests {
		if k := key(r); k != "" {
			out[k] = append(out[k], r.at.UnixNano())
		}
	}
	for _, all := range out {
		slices.Sort(all)
		if !coarse {
			continue
		}
		inSecond := map[int64]int64{}
		for i, t := range all {
			all[i] = t - (t%1e9+1e9)%1e9
			inSecond[all[i]]++
		}
		slices.Sort(all)
		for i := 0; i < len(all); {
			n := inSecond[all[i]]
			for k := range n {
				all[i+int(k)] += k * 1e9 / n
			}
			i += int(n)
		}
	}
	return out
}

// keys are the values of By in the tests.
var keys = map[By]func(request) string{
	ByIP:     func(r request) string { return r.ip },
	ByPath:   func(r request) string { return r.path },
	ByUser:   func(r request) string { return r.user },
	ByIPPath: func(r request) string { return r.ip + " " + r.path },
}

// TestAnyOrderAgreesWithTheModel compares reports with the model for every strategy and key, with
// the lines of a log in any order and cut into files anywhere.
func TestAnyOrderAgreesWithTheModel(t *testing.T) {
	all := crossed(t, []string{"3/1s", "7/13s", "2/1500ms", "20/1h", "0/1m", "2/2s,9/10s"},
		rule.Strategies...)
	burst, err := rule.Cross([]string{"3/2s"}, []string{rule.Token, rule.Leaky}, 5)
	require.NoError(t, err)
	all = append(all, burst...)
	for seed := range uint64(slow.N(1, 2, 50)) {
		requests := traffic(seed, 800)
		rnd := rand.New(rand.NewPCG(seed, 9))
		shuffle(requests, seed)
		for form, render := range map[string]func(request) string{"common": request.common,
			"caddy": request.caddy} {
			for by, key := range keys {
				cut := 1 + rnd.IntN(len(requests)-1)
				cfg := config(t, []string{write(t, "a.log", requests[:cut], render),
					write(t, "b.log", requests[cut:], render)})
				cfg.Rules, cfg.By, cfg.Top = all, by, 1<<20
				cfg.maxRun = 30 // many runs
				got := ran(t, cfg)
				instants := instantsOf(requests, key, form == "common")
				require.Len(t, instants, got.Callers)
				for i, r := range all {
					want, denied := map[string]uint64{}, map[string]uint64{}
					for caller, at := range instants {
						if n := model(r, at); n > 0 {
							want[caller] = n
						}
					}
					for _, c := range got.Rules[i].Worst {
						denied[c.Name] = c.Denied
					}
					require.Equal(t, want, denied, "seed %d, %s by %s: %s", seed, form, by, r)
				}
			}
		}
	}
}

// TestOrderMakesNoDifference checks that shuffling the lines does not change a report, with
// counting, filters and suggestions.
func TestOrderMakesNoDifference(t *testing.T) {
	requests := traffic(4, 2000)
	var want *Result
	for seed := range uint64(4) {
		cfg := config(t, []string{write(t, "a.log", requests, mixed)}, "3/1s", "5/1m:sliding", "4/10s:token", "9/1m,2/2s")
		cfg.Filter.CountIf = &Statuses{Match: func(status int) bool { return status == 401 }}
		cfg.Suggest = &Suggest{Strategies: rule.Strategies, Durations: Durations, DenyAtMost: 0.01}
		cfg.maxRun = 100
		cfg.parts = 1 + int(seed)
		got := ran(t, cfg)
		got.Config = Config{}
		if want == nil {
			want = got
			require.NotZero(t, got.Uncounted)
			require.NotZero(t, got.Rules[0].Denied)
		}
		require.Equal(t, want, got, "order %d", seed)
		shuffle(requests, seed)
	}
}

// TestStreamSpreadsSeconds checks that a stream returns requests with and without fractions of a
// second in order, those without spread over their second, all of a caller together.
func TestStreamSpreadsSeconds(t *testing.T) {
	const s = int64(1e9)
	rnd := rand.New(rand.NewPCG(6, 6))
	sp := &spool{most: 64}
	type came struct {
		ns   int64
		code uint32
	}
	var want []came
	type group struct{ second, caller int64 }
	groups := map[group][]uint32{}
	for range 5000 {
		second, code := int64(rnd.IntN(4)-2)*s, codeOf(uint32(rnd.IntN(5)), marks(rnd.IntN(1<<markBits)))
		if rnd.IntN(3) > 0 {
			in := group{second, int64(code >> markBits)}
			groups[in] = append(groups[in], code)
			sp.add(stamp(2*second), code, 0)
			continue
		}
		// several at one instant; spreading puts none there
		ns := second + rnd.Int64N(100)*(s/100) + 12_345
		want = append(want, came{ns, code})
		sp.add(stamp(2*ns+1), code, 0)
	}
	sp.sort()
	for in, codes := range groups {
		slices.Sort(codes)
		for i, code := range codes {
			want = append(want, came{in.second + int64(i)*s/int64(len(codes)), code})
		}
	}
	slices.SortFunc(want, func(a, b came) int {
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.code, b.code))
	})
	for range 2 {
		var got []came
		in := sp.open(nil)
		for q, ok := in.next(); ok; q, ok = in.next() {
			got = append(got, came{q.ns, codeOf(q.caller, q.marks)})
		}
		require.Equal(t, want, got)
	}
	require.Greater(t, len(sp.runs), 50)
}
