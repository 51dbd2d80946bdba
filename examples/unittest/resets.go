// Package unittest is a service that limits what it does, with its unit tests: see resets_test.go.
// The tests are the example; copy what you need.
package unittest

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// Resets mails password resets, to each address at most three an hour.
type Resets struct {
	Limiter weir.Strategy
	Mail    func(address string) error
}

// TooMany is the error for an address that has had its mails for now.
type TooMany struct{ Until time.Time }

func (e *TooMany) Error() string {
	return fmt.Sprintf("too many resets, try again at %s", e.Until.Format(time.TimeOnly))
}

// Request mails a reset to address. A limiter that cannot decide stops nobody: a mail too many does
// little harm.
func (s *Resets) Request(ctx context.Context, address string) error {
	ask := &weir.Request{Key: address, Limit: 3, Duration: time.Hour}
	res, err := s.Limiter.Run(ctx, ask)
	if err == nil && !res.Allowed() {
		return &TooMany{res.ExpiresAt}
	}
	if mailing := s.Mail(address); mailing != nil {
		// Only mails that were sent count.
		if of := weir.CounterOf(s.Limiter); err == nil {
			of.Do(ctx, []*weir.Op{{Counter: of, Verb: weir.OpReturn, Request: *ask, Result: *res}})
		}
		return mailing
	}
	return nil
}
