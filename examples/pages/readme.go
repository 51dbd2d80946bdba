package pages

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// Calls is in the README.
func Calls(
	ctx context.Context, limiter *weir.Limiter, perUser, perOrg *weir.Limit, addr netip.Addr,
) {
	res, err := limiter.CheckRate("ann", 30_000, 3) // 3 hits in each window of 30,000 ms

	logins := limiter.TokenBucket(5).Limit(5, time.Minute) // 5 at once, then one each 12 s
	ok := logins.AllowBytes(addr.AppendTo(nil))            // the bytes of a netip.Addr
	err = logins.Wait(ctx, "ann")                          // until a hit is admitted

	jobs := limiter.InFlight().Limit(20)
	held, err := jobs.Hold(ctx, "acme")
	if err == nil { // else 20 are at work, and it is a *weir.DeniedError; HoldWait waits for a place
		defer held.Release(ctx)
	}
	both := limits.All(perUser, logins)  // github.com/weirgo/weir/limits: all of them count, or none
	out, err := both.Take(ctx, "ann", 1) // out.By is the *weir.Limit that binds, and prints
	d, err := limits.Decide(ctx, perUser.For("ann"), perOrg.For("acme").Cost(5))

	fmt.Println(res, ok, out, d, err)
}
