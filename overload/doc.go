// Package overload protects a service that is full. It learns how many requests fit, shares the
// places among callers, and keeps some for critical requests:
//
//	guard, err := overload.New(limiter, overload.Config{}) // Goal: 250 * time.Millisecond, if known
//	…
//	place, err := guard.Enter(ctx, caller, overload.Normal)
//	if err != nil { … } // errors.As finds the *overload.FullError of a refusal
//	defer place.Leave()
//
// # The limit
//
// By Little's law the requests in flight are the throughput times how long each takes. While
// requests are refused the limit moves to where they take the goal: twice as long as in calm (from
// 100 ms on 1.5 times and 50 ms), or Config.Goal. If requests take longer, fewer are admitted. If
// far fewer in flight take nearly as long, they do not wait for each other but for something else,
// such as a dependency: then the limit goes back, and the goal is 1.5 times as long as they take.
// If the service is full within five seconds of its start, four in flight are tried once: where as
// many are served as with more, that is how long requests take in calm. Where nothing is refused
// the limit only rises. No goroutine and no signal of the CPU is needed. The limit starts at 100,
// or 16 times GOMAXPROCS if that is more, and is at least 4, or Config.Most if that is less.
//
// # Classes and shares
//
// A class may fill its part of the limit: of 100 places by default 70 for Sheddable, 90 for Normal
// and 100 for Critical requests. So sheddable requests are refused first. From where half of the
// limit is used, a caller may hold a quarter of the places that are free for the class, and always
// one; of critical requests as if half of the limit were free. So the more is used the less a loud
// caller gets, and callers who hold little are not affected. A caller alone fills half of the
// limit.
//
// Of a limit that is learnt, up to eight places are kept from Sheddable and Normal requests each,
// unless that is more than half of it: the more are refused the more are kept, and all eight from a
// third on.
//
// # Limits of this
//
//   - A service of one or two workers that gets slower the more it does at a time serves .8 of
//     its capacity while full, and refuses up to a tenth in calm after that. Set Config.Most.
//   - Critical requests that alone keep more than half of some ten places busy are refused up to a
//     tenth of the time: too few places are kept for them.
//   - A change is known after some 20 requests have ended, or 10 in 5 s. A dependency that
//     takes a second longer costs several seconds, in which the limit doubles at most once for each
//     time that a request takes; so does a service of seconds that gets slower.
//   - If one request in a hundred takes 500 times as long as others, the latency is seldom known
//     to 15 %, and a few in a thousand are refused in calm.
//   - A service of more than some four workers that is slow from its start on is taken for one that
//     is so in calm, and load at the capacity for minutes makes queues in which nothing is refused:
//     the limit then rises by 10 % at a time, until requests take the goal. With Config.Goal that
//     is a known number.
//   - A place that is held for hours, as by a stream, takes from the limit as long: Drop it when
//     the stream begins.
//   - A Guard cannot know that clients have left: Abandon their requests. If none waits for longer
//     than the goal, nothing is known of longer ones.
//
// proofs/overload has a simulation of all this, and its figures.
package overload
