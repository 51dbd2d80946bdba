// Package overload protects a service that is full. It learns how many requests fit, shares the
// places among callers, and keeps some for what is critical:
//
//	guard, err := overload.New(limiter, overload.Config{}) // Goal: 250 * time.Millisecond, if known
//	…
//	place, err := guard.Enter(ctx, caller, overload.Normal)
//	if err != nil { … } // errors.As finds an *overload.FullError, if it is full
//	defer place.Leave()
//
// # The limit
//
// By Little's law the requests in flight are the throughput times how long each takes. While
// requests are refused the limit moves to where they take the goal: twice what they take in calm
// (if that is over 100 ms, 1.5 times and 50 ms), or Config.Goal. If requests take longer, fewer are
// admitted. If half as many in flight take almost as long, they do not wait for each other but for
// something else, such as a dependency: then the limit goes back, and the goal is 1.5 times what
// they take. Where nothing is refused the limit only rises. No goroutine and no signal of the CPU
// is needed. The limit starts at 100, or 16 times GOMAXPROCS if that is more.
//
// # Classes and shares
//
// A class may fill its part of the limit: of 100 places by default 70 for Sheddable, 90 for Normal
// and 100 for Critical requests. So what is refused first is sheddable. From where half of the
// limit is used, a caller may hold a quarter of the places that are free for the class, and always
// one; of critical requests as if half of the limit were free. So the more is used the less a loud
// caller gets, and callers who hold little are not affected. A caller alone fills half of the
// limit.
//
// # Limits of this
//
//   - A service that gets slower the more it does at a time, and is so small that a burst fills it
//     (two cores, 5 ms, 10 % for each request more), may learn what it takes while it is full. Set
//     Config.Goal.
//   - At a limit below some 20 the part that is kept for critical requests is one or two places.
//   - Load at the capacity for minutes makes queues in which nothing is refused. The limit then
//     rises by 10 % at a time, until requests take the goal. With Config.Goal that is a known
//     number.
//   - It cannot know that clients have left: pass a Context that ends with the client, and Drop.
//
// proofs/overload has a simulation of all this, and its figures.
package overload
