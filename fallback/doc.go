// Package fallback puts a local strategy behind a shared one: primary decides, and when it cannot, local does, at once,
// and neither forgets what the other has admitted.
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
// A [Fallback] is a weir.Strategy: whatever takes one takes it. [New] says what it promises; [Config] says what there is
// to choose, of which Instances is the one that matters.
//
// While primary answers, local is told what primary has counted, and the ledger notes it too: no further round trip.
// When primary stops answering, the breaker opens, each caller goes on from what was spent, and the ledger adds up what
// local admits. When primary is back, the ledger is paid, caller by caller, before primary decides for that caller again.
package fallback
