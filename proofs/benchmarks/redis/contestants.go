package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/redislimit"
)

// period is so long that no window ends and hardly any token is refilled during the measurements.
const period = 30 * 24 * time.Hour

// The loads, named after the verdict. In the last one only contestants with three limits take part.
const (
	admitted      = "admitted"
	denied        = "denied" // each key has already spent its limit of 1, or its three limits of 1
	deniedByThird = "denied by the third limit"
)

// crowds are the numbers of callers for the loads of three limits in one decision.
var crowds = [...]int{1, 8, 64}

// several is the load of so many callers whose requests are held against three limits.
func several(callers int) string { return fmt.Sprintf("three limits, callers: %d", callers) }

// unlimited is a limit that no load reaches.
const unlimited = 1_000_000

// numbers holds the three limits of each load. Contestants with one limit use the third.
var numbers = map[string][3]uint64{
	admitted:      {unlimited, unlimited, unlimited},
	denied:        {1, 1, 1},
	deniedByThird: {unlimited, unlimited, 1},
}

// rival is redis_rate with one limit. rivals maps a load to the contestant that the others are
// compared with.
const rival = "redis_rate"

var rivals = map[string]string{admitted: rival, denied: rival, deniedByThird: threeRivals}

// leased is the number of hits that a lease takes from Redis at once.
const leased = 100

// contestant is a limiter under one load.
type contestant struct {
	name, load string
	open       func(s *stand) (decide, error)
	rounds     int // minimum number of calls per key in a measurement
	callers    int // 0: as the flag says
}

// decide reports whether one hit of key is admitted.
type decide func(ctx context.Context, key string) (allowed bool, err error)

// stand holds what contestants need to open.
type stand struct {
	client *redis.Client
	store  *redislimit.Store
	limits [3]uint64
	ids    []string
	closes []func() error
	window weir.Strategy // of asks
}

var contestants = func() (all []contestant) {
	for _, load := range []string{admitted, denied} {
		all = append(all,
			contestant{rival, load, openRival, 1, 0},
			contestant{"FixedWindow", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.FixedWindow(), nil
			}), 1, 0},
			contestant{"SlidingWindow", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.SlidingWindow(), nil
			}), 1, 0},
			contestant{"TokenBucket", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.TokenBucket(0), nil
			}), 1, 0},
			contestant{"SlidingLog", load, plain(func(s *stand) (weir.Strategy, error) {
				return s.store.SlidingLog(), nil
			}), 1, 0},
			contestant{tiers, load, plain(threeTiers), 1, 0},
			contestant{threeRivals, load, openThreeRivals, 1, 0},
		)
	}
	for _, callers := range crowds {
		numbers[several(callers)], rivals[several(callers)] = numbers[admitted], rival
		all = append(all,
			contestant{rival, several(callers), openRival, 1, callers},
			contestant{threeCalls, several(callers), openThreeCalls, 1, callers},
			contestant{oneDecide, several(callers), openDecide, 1, callers},
		)
	}
	return append(all,
		contestant{threeRivals, deniedByThird, openThreeRivals, 1, 0},
		contestant{tiers, deniedByThird, plain(threeTiers), 1, 0},
		// Each key gets as many calls as a lease has hits, so that each measurement uses up one
		// lease per key.
		contestant{lease, admitted, plain(openLease), leased, 0},
	)
}()

// Tiers and its rival: redis_rate needs three calls for three limits.
const (
	tiers       = "Tiers (3)"
	threeRivals = rival + ", three limits"
)

// Three fixed windows, one after the other and in one limits.Decide.
const (
	threeCalls = "FixedWindow, three calls"
	oneDecide  = "FixedWindow, three asks of one Decide"
)

// asks are three fixed windows.
func (s *stand) asks(key string) [3]weir.Ask {
	var asks [3]weir.Ask
	for i, d := range periods {
		asks[i] = weir.Ask{Strategy: s.window,
			Request: weir.Request{Key: key, Limit: s.limits[i], Duration: d}}
	}
	return asks
}

func openThreeCalls(s *stand) (decide, error) {
	s.window = s.store.FixedWindow()
	return func(ctx context.Context, key string) (bool, error) {
		for _, a := range s.asks(key) {
			res, err := a.Strategy.Run(ctx, &a.Request)
			if err != nil || !res.Allowed() {
				return false, err
			}
		}
		return true, nil
	}, nil
}

func openDecide(s *stand) (decide, error) {
	s.window = s.store.FixedWindow()
	return func(ctx context.Context, key string) (bool, error) {
		asks := s.asks(key)
		d, err := limits.Decide(ctx, asks[:]...)
		return err == nil && d.Allowed(), err
	}, nil
}

// The periods of the three limits, and the suffixes of redis_rate's keys for them.
var (
	periods  = [3]time.Duration{time.Hour, 24 * time.Hour, period}
	suffixes = [3]string{":1", ":2", ":3"}
)

var lease = fmt.Sprintf("FixedWindow, leases of %d", leased)

// limit returns the limit of a contestant that has one.
func (s *stand) limit() uint64 { return s.limits[len(s.limits)-1] }

func openRival(s *stand) (decide, error) {
	l := redis_rate.NewLimiter(s.client)
	limit := redis_rate.Limit{Rate: int(s.limit()), Burst: int(s.limit()), Period: period}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := l.Allow(ctx, key, limit)
		return err == nil && res.Allowed == 1, err
	}, nil
}

// openThreeRivals checks one limit after the other, each under its own key, and stops at the first
// denial.
func openThreeRivals(s *stand) (decide, error) {
	l := redis_rate.NewLimiter(s.client)
	return func(ctx context.Context, key string) (bool, error) {
		for i, d := range periods {
			limit := redis_rate.Limit{Rate: int(s.limits[i]), Burst: int(s.limits[i]), Period: d}
			res, err := l.Allow(ctx, key+suffixes[i], limit)
			if err != nil || res.Allowed == 0 {
				return false, err
			}
		}
		return true, nil
	}, nil
}

// plain returns a contestant that calls a weir.Strategy.
func plain(open func(*stand) (weir.Strategy, error)) func(*stand) (decide, error) {
	return func(s *stand) (decide, error) {
		strategy, err := open(s)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, key string) (bool, error) {
			res, err := strategy.Run(ctx, &weir.Request{Key: key, Limit: s.limit(), Duration: period})
			return err == nil && res.Allowed(), err
		}, nil
	}
}

func threeTiers(s *stand) (weir.Strategy, error) {
	var all []weir.Tier
	for i, d := range periods {
		all = append(all, weir.Tier{Limit: s.limits[i], Duration: d})
	}
	return s.store.Tiers(all...), nil
}

func openLease(s *stand) (weir.Strategy, error) {
	local, err := weir.New(weir.Config{})
	if err != nil {
		return nil, err
	}
	primary := near.NewLeases(s.store.FixedWindow(), near.LeaseConfig{Block: leased})
	f, err := fallback.New(primary, local.FixedWindow(), fallback.Config{Timeout: generous})
	if err != nil {
		return nil, err
	}
	s.closes = append(s.closes, local.Close)
	return f, nil
}
