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
// Time is cut into windows of a scale in milliseconds; window n begins n scales after the Unix
// epoch. A sharded hash table, keyed by ID, scale and window number, holds a bucket for each caller
// in each window, and a janitor goroutine sweeps those that are over. Because the window is part of
// the key, a bucket whose window has ended is never counted in again, and sweeping loses no count.
// That is what CheckRate does. The file checkrate.go holds all methods of a [Limiter] that are not
// constructors of strategies.
//
// A [Strategy] makes the same decision behind an interface, which the strategies of redislimit
// implement too. Methods of [Limiter] return them: FixedWindow, SlidingWindow, SlidingLog,
// TokenBucket, LeakyBucket, Tiers, Counter, List. All strategies of one Limiter share its bound on memory, its
// janitor and its clock, but no counter: the same key counts separately in each kind of strategy and
// in each Duration.
//
// What the package promises, and its tests prove: exactly the limit is admitted however many
// goroutines ask; a denial takes nothing; an error counts nothing; memory is bounded, and no live
// count is evicted to keep it so; a step of the wall clock changes nothing; a known id allocates
// nothing.
//
// Package weirtest has a scripted fake and the conformance suite of every Strategy; httplimit, the
// HTTP middleware; fallback, a local Strategy behind a remote one.
package weir
