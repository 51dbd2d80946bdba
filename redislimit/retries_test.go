package redislimit_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// seen is the result of one decision as seen by its caller.
type seen struct {
	unknown bool // an error: perhaps counted
	allowed bool
	total   uint64
}

// counts models one counter; the input is its limit. A call with an unknown result may have been
// counted.
var counts = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{uint64(0)} },
	Step: func(state, input, output any) []any {
		n, limit, o := state.(uint64), input.(uint64), output.(seen)
		switch {
		case o.unknown && n < limit:
			return []any{n, n + 1}
		case o.unknown:
			return []any{n}
		case o.allowed && n < limit && o.total == n+1:
			return []any{n + 1}
		case !o.allowed && n == limit && o.total == n:
			return []any{n}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

// history makes decisions from 6 callers, a fifth more than the limit. It checks that one counter
// explains the results, and returns the number of lost replies.
func history(limit uint64, decide func() seen) (legal porcupine.CheckResult, lost int) {
	const callers = 6
	ops := make([][]porcupine.Operation, callers)
	base := time.Now()
	var wg sync.WaitGroup
	for id := range callers {
		wg.Go(func() {
			for range limit / 5 {
				call := int64(time.Since(base))
				out := decide()
				end := int64(time.Since(base))
				if out.unknown {
					end = math.MaxInt64 // it may take effect at any later time
				}
				ops[id] = append(ops[id],
					porcupine.Operation{ClientId: id, Input: limit, Call: call, Output: out,
						Return: end})
			}
		})
	}
	wg.Wait()
	var all []porcupine.Operation
	for _, o := range ops {
		all = append(all, o...)
	}
	for _, o := range all {
		if o.Output.(seen).unknown {
			lost++
		}
	}
	return porcupine.CheckOperationsTimeout(counts, all, time.Minute), lost
}

// lossy returns a proxy that loses the replies of one script in ten.
func lossy(t *testing.T) *redistest.Proxy {
	p := redistest.NewProxy(t, redistest.Start(t).Addr)
	p.OnCommand(func(command []string) redistest.Action {
		if (command[0] == "evalsha" || command[0] == "eval") && rand.IntN(10) == 0 {
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	return p
}

// runner returns a function that makes a decision of s on the given key.
func runner(t *testing.T, s weir.Strategy, limit uint64, key string) func() seen {
	r := &weir.Request{Key: key, Limit: limit, Duration: time.Hour}
	return func() seen {
		res, err := s.Run(context.Background(), r)
		if err != nil {
			assert.Equal(t, redislimit.Down, redislimit.Classify(err), "%v", err)
			return seen{unknown: true}
		}
		return seen{allowed: res.Allowed(), total: res.TotalRequests}
	}
}

// A script is one atomic step, and a decision whose reply is lost is not repeated. With one reply
// in ten lost, one counter explains every concurrent history, also for a client that retries by
// default, as weir's commands disable retries.
func TestLostRepliesAreNotRetried(t *testing.T) {
	slow.Test(t)
	const limit = 50 // so 60 decisions in each history
	proxy := lossy(t)
	still := func() time.Time { return time.Unix(1_700_000_000, 0) } // no period ends during a history
	unsafe := storeOn(t, dial(t, &redis.Options{Addr: proxy.Addr}), redislimit.Config{
		Prefix: "retrying:", Now: still, Timeout: generous, AllowUnsafeClient: true})
	for client, store := range map[string]*redislimit.Store{
		"Options":                     open(t, proxy.Addr, redislimit.Config{Now: still}),
		"client with default retries": unsafe,
	} {
		for name, s := range everyStrategy(t, store, &weir.Request{Limit: limit, Duration: time.Hour}) {
			t.Run(client+"/"+name, func(t *testing.T) {
				t.Parallel()
				illegal, unknown, undecided := 0, 0, 0
				histories := slow.N(0, 4, 66) // for each of 16 strategies; 1,056 in make nightly
				for i := range histories {
					verdict, lost := history(limit, runner(t, s, limit, strconv.Itoa(i)))
					unknown += lost
					switch verdict {
					case porcupine.Illegal:
						illegal++
					case porcupine.Unknown:
						undecided++
					}
				}
				t.Logf("%d histories, %d replies lost, %d illegal, %d not decided in a minute", histories,
					unknown, illegal, undecided)
				assert.Zero(t, illegal)
				assert.LessOrEqual(t, undecided, max(1, histories/20))
				assert.NotZero(t, unknown, "the proxy loses replies")
			})
		}
	}
}

// The negative control: the counting script of the Redis documentation, run by Script.Run on a
// client with default settings, is retried and counts twice.
func TestRetriesControlDefaultClientCountsTwice(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	client := dial(t, &redis.Options{Addr: lossy(t).Addr})
	incr := redis.NewScript(`
		local n = tonumber(redis.call('GET', KEYS[1]) or 0)
		if n >= tonumber(ARGV[1]) then return {0, n} end
		redis.call('SET', KEYS[1], n + 1, 'EX', 3600)
		return {1, n + 1}`)
	flagged := 0
	const limit, histories = 100, 15
	for i := range histories {
		verdict, _ := history(limit, func() seen {
			v, err := incr.Run(context.Background(), client, []string{strconv.Itoa(i)}, limit).Int64Slice()
			if err != nil {
				return seen{unknown: true}
			}
			return seen{allowed: v[0] == 1, total: uint64(v[1])}
		})
		if verdict == porcupine.Illegal {
			flagged++
		}
	}
	t.Logf("%d of %d histories flagged", flagged, histories)
	assert.GreaterOrEqual(t, flagged, histories*9/10)
}
