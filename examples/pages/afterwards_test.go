package pages

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"
	"time"

	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/weirtest"
)

const afterwards = `
domain: models
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10000}
    metadata: {weir: {costs: afterwards}}
`

func Example_tokensAfterwards() {
	ctx := context.Background()
	set, err := rules.Load(fstest.MapFS{"limits.yaml": {Data: []byte(afterwards)}})
	if err != nil {
		log.Fatal(err)
	}
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	engine, err := rules.New(set, rules.Config{Now: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	generate := func() uint64 { return 6_000 } // how many tokens it took

	tokens := func(user string, n uint64) *rules.Response {
		resp, err := engine.Decide(ctx, &rules.Request{Domain: "models", Descriptors: []rules.Descriptor{
			{Entries: []rules.Entry{{Key: "user", Value: user}}, Hits: n, HasHits: true}}})
		if err != nil {
			log.Fatal(err) // could not decide
		}
		return resp
	}
	for range 3 {
		if peek := tokens("ann", 0); !peek.Allowed() { // 0 counts nothing
			fmt.Println("denied for", peek.Statuses[0].Reset)
			continue
		}
		report := tokens("ann", generate()) // counts in full, even over the limit
		fmt.Println(report.Statuses[0].Remaining, "are left")
	}
	// Output:
	// 4000 are left
	// 0 are left
	// denied for 1m0s
}
