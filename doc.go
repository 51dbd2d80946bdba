// Package weir limits rates in process: no server, one import.
//
//	limiter, err := weir.New(weir.Config{})
//	if err != nil { … }
//	defer limiter.Close()
//
//	res, err := limiter.CheckRate("10.0.0.7", 30_000, 500) // at most 500 hits in 30 s
//	if err != nil { … } // could not decide: fail open or fail closed, as you choose
//	if !res.Allowed() { … res.RetryAfter(time.Now()) … }
//
// # Begin here
//
// [New] makes a [Limiter], once for a program. [Limiter.CheckRate] counts in fixed windows. That
// algorithm, and each other one, is a [Strategy] too, which a method of the Limiter returns: Run
// takes a [Request] and returns a [Result], and on a FixedWindow it counts where CheckRate does.
//
//	res, err := limiter.SlidingWindow().Run(ctx, &weir.Request{
//		Key: "10.0.0.7", Limit: 500, Duration: 30 * time.Second})
//
// All strategies of a Limiter share its bound on memory, its janitor and its clock. Those of one
// kind count together for each key and Duration; different kinds count separately. [JoinKey] makes
// a key of several parts. [Wait] sleeps until a strategy admits, [Hold] admits work until it ends,
// [Reserve] takes an estimate and corrects it, and [Decide] holds a request against several.
//
// docs/tutorial.md of the repository begins at the beginning, docs/strategies.md helps to choose
// and lists what is promised, and docs/recipes.md has tested answers. Package weirtest has a
// scripted fake and the conformance suite of every Strategy; httplimit, the HTTP middleware;
// redislimit, the strategies on Redis; fallback, a local Strategy behind a remote one.
//
// # Types, by who needs them
//
//   - Everybody: [Limiter], [Config], [Request], [Result], [State] and [Strategy].
//   - To choose: [FixedWindow], [Calendar] and [CalendarUnit], [SlidingWindow], [SlidingLog],
//     [TokenBucket], [LeakyBucket], [Tiers] and [Tier], [Counter], [List] and [Entry], [InFlight];
//     [Policy], and [All], make one of several.
//   - More than one call: [Ask] and [Decision], [Reservation], [Held], [DeniedError].
//   - To look and to correct: [Stats], [Bucket], [Peeker], [Refunder], [Resetter], [PrefixResetter]
//     and [Named].
//   - Users of raterlimiter in Erlang: [Verdict].
//   - Authors of stores and middlewares: see below.
//
// # What implements what
//
// All strategies of a Limiter implement [Peeker], [Refunder], [Resetter], [PrefixResetter],
// [Seeder], [Charger], [Admitter] and [Named]. Besides those, or as far as it says here:
//
//	Forecaster  FixedWindow Calendar SlidingWindow TokenBucket Counter List
//	Holder      InFlight
//	All         Peeker Charger Admitter Named
//	Policy      Peeker Refunder Resetter Seeder Charger Reconciler Admitter Holder,
//	            if its Strategy does
//
// # For authors of stores and middlewares
//
// A program that only limits needs none of these. A Strategy of your own can be one method, Run.
// Package fallback adds a local one to it, and calls [Seeder], [Charger] and [Reconciler], with a
// [Backlog] of what was admitted without it. [Decide] has a [Batcher] call an [Op] for each
// [Attempt] of a store in one round trip. A [Return] gives back what an [Admitter] took, and a [Place] what a
// [Holder] holds. A middleware keeps its [Attempts] from request to request, and asks a [Forecaster]
// when there is more. weirtest.TestStrategy tests what of them there is.
//
// # How it works
//
// Time is cut into windows of a length in milliseconds, the scale; window n begins n scales after
// the Unix epoch. A sharded hash table, keyed by ID, scale and window number, holds a bucket for
// each caller in each window, and a janitor goroutine removes the buckets that have expired. The
// window is part of the key, so nothing is counted in a bucket once its window has ended, and
// removing it loses no count.
package weir
