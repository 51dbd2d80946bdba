// Package fallback puts a local strategy behind a shared one: primary decides, and when it cannot,
// local does, at once. Each continues from the counts of the other.
//
//	client := redis.NewClient(redislimit.Options("127.0.0.1:6379"))
//	store, err := redislimit.New(client, redislimit.Config{})
//	…
//	limiter, err := weir.New(weir.Config{})
//	…
//	f, err := fallback.New(store.FixedWindow(), limiter.FixedWindow(), fallback.Config{Instances: 3})
//	…
//	res, err := f.Run(ctx, &weir.Request{Key: "10.0.0.7", Limit: 100, Duration: time.Minute})
//
// A [Fallback] is a weir.Strategy. [New] states its promises; of the fields of [Config], Instances
// is the one to set. To spare primary round trips, wrap it in the strategies of package near.
//
// # How it works
//
// While the breaker is closed, primary decides. Its counts seed local and are recorded in the
// ledger, without a further round trip. When a call fails or is late, local decides, as if the
// calls that are still under way were admitted. When too large a share of calls fails or is late,
// the breaker opens: local decides, and the ledger sums up the cost that local admits for each
// caller. After each ProbeInterval a request starts a probe in the background; when primary admits
// the probe's request within Timeout, the breaker closes. The next decision for each caller then
// charges primary with that caller's debts.
package fallback
