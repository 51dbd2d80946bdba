package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/redislimit"
)

// period is so long that during the measurements no window ends, and no more tokens grow back than
// matter.
const period = 30 * 24 * time.Hour

// The two loads, by what becomes of the calls.
const (
	admitted = "admitted"
	denied   = "denied" // each key has spent its limit of 1 before
)

// limits of the loads: admitted never comes near to its.
var limits = map[string]uint64{admitted: 1_000_000, denied: 1}

// rival is the one that all others are compared to.
const rival = "redis_rate"

// leased is how much a lease takes at once.
const leased = 100

// contestant is a limiter under one load.
type contestant struct {
	name, load string
	open       func(s *stand) (decide, error)
	rounds     int // how often each key is asked about in a measurement, at least
}

// decide asks for one hit of key.
type decide func(ctx context.Context, key string) (allowed bool, err error)

// stand is what a contestant is made of.
type stand struct {
	client *redis.Client
	store  *redislimit.Store
	limit  uint64
	ids    []string
	closes []func() error
}

var contestants = func() (all []contestant) {
	for _, load := range []string{admitted, denied} {
		all = append(all,
			contestant{rival, load, openRival, 1},
			contestant{"FixedWindow", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.FixedWindow(), nil
			}), 1},
			contestant{"SlidingWindow", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.SlidingWindow(), nil
			}), 1},
			contestant{"TokenBucket", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.TokenBucket(0), nil
			}), 1},
			contestant{"SlidingLog", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.SlidingLog(), nil
			}), 1},
			contestant{tiers, load, plain(threeTiers), 1},
		)
	}
	return append(all,
		contestant{threeRivals, admitted, openThreeRivals, 1},
		// As many calls as a lease has: in each measurement, each key uses up one.
		contestant{lease, admitted, plain(openLease), leased},
	)
}()

// The names of Tiers, and of its rival: with redis_rate three limits are three calls.
const (
	tiers       = "Tiers (3)"
	threeRivals = rival + ", three limits"
)

// The three limits' periods, and what redis_rate's keys for them end in.
var (
	periods  = [3]time.Duration{time.Hour, 24 * time.Hour, period}
	suffixes = [3]string{":1", ":2", ":3"}
)

var lease = fmt.Sprintf("FixedWindow, leases of %d", leased)

func openRival(s *stand) (decide, error) {
	l := redis_rate.NewLimiter(s.client)
	limit := redis_rate.Limit{Rate: int(s.limit), Burst: int(s.limit), Period: period}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key, limit)
		return err == nil && res.Allowed == 1, err
	}, nil
}

// openThreeRivals asks for one limit after the other, each under a key of its own, up to the first
// denial.
func openThreeRivals(s *stand) (decide, error) {
	l := redis_rate.NewLimiter(s.client)
	return func(ctx context.Context, key string) (bool, error) {
		for i, d := range periods {
			limit := redis_rate.Limit{Rate: int(s.limit), Burst: int(s.limit), Period: d}
			res, err := l.Allow(ctx, key+suffixes[i], limit)
			if err != nil || res.Allowed == 0 {
				return false, err
			}
		}
		return true, nil
	}, nil
}

// plain is a contestant that is a weir.Strategy.
func plain(open func(*stand) (weir.Strategy, error)) func(*stand) (decide, error) {
	return func(s *stand) (decide, error) {
		strategy, err := open(s)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, key string) (bool, error) {
			res, err := strategy.Run(ctx, &weir.Request{Key: key, Limit: s.limit, Duration: period})
			return err == nil && res.Allowed(), err
		}, nil
	}
}

func threeTiers(s *stand) (weir.Strategy, error) {
	var all []weir.Tier
	for _, d := range periods {
		all = append(all, weir.Tier{Limit: s.limit, Duration: d})
	}
	return s.store.Tiers(all...)
}

func openLease(s *stand) (weir.Strategy, error) {
	local, err := weir.New(weir.Config{})
	if err != nil {
		return nil, err
	}
	primary := near.Lease(s.store.FixedWindow(), near.LeaseConfig{Block: leased})
	f, err := fallback.New(primary, local.FixedWindow(), fallback.Config{Timeout: generous})
	if err != nil {
		return nil, err
	}
	s.closes = append(s.closes, local.Close)
	return f, nil
}
