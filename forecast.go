package weir

import (
	"context"
	"time"
)

// allAtOnce is part of the strategies whose admissions all lapse at ExpiresAt, and none before.
type allAtOnce struct{}

// Forecast implements [Forecaster]: it returns ExpiresAt. It does not fail.
func (allAtOnce) Forecast(_ context.Context, _ *Request, admitted *Result) (time.Time, error) {
	if admitted.TotalRequests == 0 {
		return time.Time{}, nil
	}
	return admitted.ExpiresAt, nil
}
