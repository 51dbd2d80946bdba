package pages

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/weirtest"
)

// Plan is what a customer has bought.
type Plan struct {
	Requests   uint64 // in each month
	BillingDay int    // 1 to 31: on the 31st, shorter months begin on their last day
	Zone       *time.Location
}

// Quota admits a request of a customer in the month that was paid for, or says when the next one
// begins.
func Quota(
	ctx context.Context, limiter *weir.Limiter, customer string, plan Plan,
) (weir.Outcome, error) {
	month := weir.Month.From(plan.BillingDay)
	if err := month.Check(); err != nil {
		return weir.Outcome{}, err
	}
	return limiter.Calendar(month, plan.Zone).Limit(plan.Requests).Named("quota").Take(ctx, customer, 1)
}

func Example_quotaByTheMonth() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()

	// in a container without zones: import _ "time/tzdata"
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	small := Plan{Requests: 2, BillingDay: 31, Zone: berlin}
	for range 3 {
		res, err := Quota(ctx, limiter, "acme", small)
		if err != nil {
			log.Fatal(err) // could not decide
		}
		fmt.Println(res.Allowed(), res.TotalRequests, "of 2 until",
			res.ExpiresAt.In(berlin).Format(time.DateTime))
	}
	// Output:
	// true 1 of 2 until 2026-11-30 00:00:00
	// true 2 of 2 until 2026-11-30 00:00:00
	// false 2 of 2 until 2026-11-30 00:00:00
}

// Each month admits the quota, whichever length it has, in a zone whose clocks are set.
func TestQuotaOfEachMonth(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	clock := weirtest.NewClock(time.Date(2027, 12, 31, 0, 0, 0, 0, berlin))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer limiter.Close()
	for _, next := range []string{"01-31", "02-29", "03-31", "04-30", "05-31", "06-30"} {
		var res weir.Outcome
		for n := range 4 {
			res, err = Quota(t.Context(), limiter, "acme", Plan{3, 31, berlin})
			require.NoError(t, err)
			assert.Equal(t, n < 3, res.Allowed())
		}
		assert.Equal(t, "2028-"+next+" 00:00:00", res.ExpiresAt.In(berlin).Format(time.DateTime))
		clock.Set(res.ExpiresAt)
	}
	_, err = Quota(t.Context(), limiter, "acme", Plan{3, 32, berlin})
	assert.Error(t, err)
}
