// Package limits decides several limits at once: all admit a request, or none counts it.
//
//	both := limits.All(perSecond, perDay)     // on one key, with Allow, Take, Peek, Wait
//	out, err := limits.Decide(ctx, requests.For(user), tokens.For(org).Cost(n))
//	v, err := limits.Reserve(ctx, tokens.For(org).Cost(n)) // an estimate, corrected by v.Commit
//
// A middleware keeps [Attempts] from request to request; All, Decide and Reserve are made of them.
// Limits on one store, by About.Store of a [weir.Counter], decide in one call of its Do.
package limits
