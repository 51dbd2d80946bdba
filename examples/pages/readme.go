package pages

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// Work is in the README.
func Work(ctx context.Context, limiter *weir.Limiter, addr netip.Addr) {
	logins := limiter.TokenBucket(5).Limit(5, time.Minute) // 5 at once, then one each 12 s
	ok := logins.AllowBytes(addr.AppendTo(nil))            // the bytes of a netip.Addr
	err := logins.Wait(ctx, "ann")                         // until a hit is admitted

	jobs := limiter.InFlight().Limit(20)
	held, err := jobs.Hold(ctx, "acme")
	if err == nil { // else 20 are at work, and it is a *weir.DeniedError; HoldWait waits for a place
		defer held.Release(ctx)
	}

	fmt.Println(ok, err)
}

// Several is in the README.
func Several(ctx context.Context, perUser, perHour, perOrg *weir.Limit) {
	both := limits.All(perUser, perHour) // github.com/weirgo/weir/limits: each counts, or none
	out, err := both.Take(ctx, "ann", 1) // out.By is the *weir.Limit that binds, and prints
	out, err = limits.Decide(ctx, perUser.For("ann"), perOrg.For("acme").Cost(5))

	fmt.Println(out, err)
}

// Plain is in the README.
func Plain(limiter *weir.Limiter) {
	res, err := limiter.CheckRate("ann", 30_000, 3) // 3 hits in each window of 30,000 ms

	fmt.Println(res, err)
}
