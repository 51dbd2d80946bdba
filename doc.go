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
// Time is cut into windows of a length in milliseconds, the scale; window n begins n scales after
// the Unix epoch. A sharded hash table, keyed by ID, scale and window number, holds a bucket for
// each caller in each window, and a janitor goroutine removes the buckets that have expired. The
// window is part of the key, so nothing is counted in a bucket once its window has ended, and
// removing it loses no count.
//
// CheckRate is such a fixed window counter. The other algorithms are each a [Strategy], which the
// strategies of redislimit implement too. Methods of [Limiter] return them: FixedWindow, which is
// CheckRate behind that interface, Calendar, which counts in days or months of a time zone, SlidingWindow,
// SlidingLog, TokenBucket, LeakyBucket, Tiers, Counter and List. All strategies of one Limiter share its bound on memory, its janitor and its
// clock. Those of one kind count together for each key and Duration; different kinds count
// separately. [All], [Policy], [Wait] and [Reserve] work with any Strategy.
//
// The package promises, and its tests prove: CheckRate admits exactly the limit in a window,
// however many goroutines call it; a denial takes nothing; an error counts nothing; memory is
// bounded, and no live count is evicted to keep it so; a step of the wall clock changes nothing;
// CheckRate allocates nothing for an ID that has a bucket.
//
// Package weirtest has a scripted fake and the conformance suite of every Strategy; httplimit, the
// HTTP middleware; fallback, a local Strategy behind a remote one.
package weir
