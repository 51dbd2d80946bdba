// Package limits decides several limits at once: all admit a request, or none counts it.
//
//	both := limits.All(perSecond, perDay)     // on one key: a weir.Limit again
//	d, err := limits.Decide(ctx, requests.For(user), tokens.For(org).Cost(n))
//	v, err := limits.Reserve(ctx, tokens, r)  // an estimate, corrected by v.Commit
//
// A middleware keeps [Attempts] from request to request; All, Decide and Reserve are made of them.
// A store that decides on several limits in one round trip is a [Batcher], which is called for each
// [Attempt] with an [Op].
package limits
