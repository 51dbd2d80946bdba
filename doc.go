// Package weir limits rates in process: no server, one import.
//
//	limiter, err := weir.New(weir.Config{})
//	if err != nil { … }
//	defer limiter.Close()
//
//	perClient := limiter.SlidingWindow().Limit(500, 30*time.Second)
//	if !perClient.Allow("10.0.0.7") { … } // more than 500 in 30 s
//
// # Begin here
//
// [New] makes a [Limiter], once for a program. Its methods return the algorithms, and the Limit
// method of each binds one to its numbers: a [Limit] is a value, made where the program starts,
// that counts by itself. Begin with the sliding window, which has no edge at which a caller gets
// twice the limit at once, and keeps one number for each caller. Everything else a program needs is
// a method of the Limit:
//
//	perUser := limiter.SlidingWindow().Limit(100, time.Minute)
//	logins := limiter.TokenBucket(5).Limit(5, time.Minute).Named("logins")
//	jobs := limiter.InFlight().Limit(20)
//
//	perUser.Allow(user)                      // a hit; AllowBytes takes an address or an integer
//	out, err := perUser.Take(ctx, user, 3)   // a cost; out says how much is left, how long to wait
//	err = logins.Wait(ctx, user)             // until admitted
//	held, err := jobs.Hold(ctx, tenant)      // until held.Release(ctx)
//
// Package github.com/weirgo/weir/limits holds a request to several of them at once, or to none:
// limits.All(perUser, logins) on one key, limits.Decide(ctx, perUser.For(user),
// tokens.For(org).Cost(n)) on several.
//
// [Limiter.CheckRate], the call of the original for code that has a limit in numbers, counts in
// fixed windows. A Limit decides by a [Strategy], which is the contract with stores too: Run takes
// a [Request] with its own numbers, and returns a [Result]. Limits of one name count together, as
// do equal ones without a name, and neither counts with CheckRate or a Strategy's Run.
//
// All strategies of a Limiter share its bound on memory, its janitor and its clock. [JoinKey] makes
// a key of several parts.
//
// docs/README.md of the repository has three ways through its pages, and answers: docs/tutorial.md
// begins at the beginning, docs/strategies.md helps to choose and lists the promises, and
// docs/recipes.md has tested answers. Package weirtest has a scripted fake and the conformance
// suite of every Strategy; httplimit, the HTTP middleware; redislimit, the strategies on Redis;
// fallback, a local Strategy behind a remote one; limits, several limits at once.
//
// # Types, by who needs them
//
//   - Everybody: [Limiter], [Config], [Limit] and [Outcome].
//   - To choose: [WindowCounter], [Calendar] and [CalendarUnit], [SlidingLog], [TokenBucket],
//     [LeakyBucket], [Tiers] and [Tier], [List] and [Hit], [InFlight].
//   - More than one call: [Held], [DeniedError], [Reservation], and [Ask] for package limits.
//   - To decide by the numbers of each request: [Strategy], [Request], [Result] and [State].
//   - To look: [Stats] and [Bucket].
//   - Users of raterlimiter in Erlang: [Verdict].
//   - Authors of stores and middlewares: see below.
//
// # What can be asked of a Strategy
//
// All strategies of a Limiter are a Counter, whose Do does Op values: each can OpTake, OpPeek,
// OpReturn, OpCharge, OpReset, OpResetPrefix and OpCatchUp. Besides those:
//
//	OpHits      SlidingLog List
//	OpHold      InFlight
//	OpForecast  FixedWindow Calendar SlidingWindow TokenBucket Counter List
//
// # For authors of stores and middlewares
//
// A program that only limits needs none of these. A Strategy of your own can be one method, Run. A
// store that can do more is a [Counter]: [NewCounter] makes one of a function that does an [Op],
// with a [Verb]. A Counter of your own has Do, which takes one Op or several, and an [About], which
// describes the Counter and has its [Verbs]. An admission that may be given back has a [Receipt]; a
// [Lapse] is how it ends, and a [Source] who decided. Package fallback adds a local Counter to one
// elsewhere, and has it catch up with a [Backlog]. [CounterOf] makes a Counter of any Strategy, or
// finds the one of a Limit. Package limits has the state that a middleware keeps of several limits.
// weirtest.TestStrategy tests that a Counter can do all that its About says.
//
// # How it works
//
// Time is cut into windows of a length in milliseconds, the scale; window n begins n scales after
// the Unix epoch. A sharded hash table, keyed by ID, scale and window number, holds a bucket for
// each caller in each window (the sliding strategies and token buckets have one for each caller),
// and a janitor goroutine removes the buckets that have expired. The window is part of the key, so
// nothing is counted in a bucket once its window has ended, and removing it loses no count.
package weir

// The files, for who works on the package; docs/internals/design.md tells how they decide.
//
// What callers see:
//
//	limiter.go       Limiter: New, Stats, Close; the errors
//	strategy.go      Strategy, Request, Result; where a Strategy counts; bounds, and what is beyond
//	                 them
//	counter.go       Counter, Op and its Verbs, About; how an Op and the engine meet
//	limit.go         Limit: all that it can do; NewLimit
//	outcome.go       Outcome, and how people read it; how much is left, where a Result does not say
//	                 it
//	checkrate.go     CheckRate, from its arguments to the compare-and-swap
//	bucket.go        Bucket: a slot of a fixed window, as people read it; Inspect, Buckets, Reset
//	wait.go          Wait: who asks next, and when
//	hold.go          Hold and HoldWait, in this process or elsewhere; the places of overload;
//	                 Reservation: an estimate that is corrected
//	snapshot.go      Save and Load, and their files
//	mochi_compat.go  the names and answers of the originals
//
// Methods of Limiter stand with their result, or with their subject: the constructors of
// strategies with these, CheckRate, buckets, snapshots and the names of the originals in the files
// above. So do Wait, Hold and Reserve of a Limit, and the parts of a reader that NewLimit needs:
// where files flow one way, a type does not know its users. All other methods stand in the file of
// their type.
//
// The strategies, with their promises and their Limits:
//
//	algorithms.go    FixedWindow, SlidingWindow, TokenBucket, Counter on slots; SlidingLog, List,
//	                 Tiers, LeakyBucket on states
//	calendar.go      Calendar, on slots
//	in_flight.go     InFlight, on both: Hold on a slot, as long as there are no leases and nobody
//	                 waits; Held
//
// How they decide:
//
//	request.go  a Request becomes params, and an Op a verb of the engine; keys
//	stores.go   the common part of strategies on slots, and of strategies on states: Run; few ops on
//	            slots at once; fixed windows by CheckRate's compare-and-swap
//	decider.go  a Limit: by its slots or, as a call of a Counter, other strategies; how it fails; by
//	            a Strategy of another package: its label and its keys; any Strategy as a Counter
//
// Their data:
//
//	table.go    which buckets are in which table; the meaning of a slot's contents; sums
//	janitor.go  sweeps; room at a full table
//
// The packages of internal/core:
//
//	engine     decides: each verb once on slots and once on states; places and leases, queues, the
//	           records of a snapshot. It knows no Request, Op, Limit or Limiter
//	algorithm  the arithmetic and the state of each strategy, a file each: pure, its callers hold
//	           the lock
//	slots      slots, and the table of their shards: to find and to hit them takes no lock, all that
//	           a shard does takes its mutex
//	ids        the words and the hash of an ID
//	states     states of no fixed size, under a lock each; the bounds of a sweep, without one
//	windows    the windows of a length, and series: of calendars and of Limits; kept by atomics,
//	           and a new series takes a mutex
//	clock      the clock
//	room       how many buckets and bytes are in use: atomics. The locks of a table and of states
//	           take some, and give it back with the bucket
//	tally      a sum that several processors add to; sums of decisions
//	turns      the queues of those who wait: a mutex for the process
//	renewal    places elsewhere, renewed by a goroutine a group
//	snapshot   the frame of a snapshot: version, numbers and texts, checksum
//	atomicfile files that are replaced as a whole, and locked against other processes
//	calendar, arith, bounds: pure
