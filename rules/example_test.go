package rules_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/rules"
)

// Load rules from a file and decide on a request in process.
func Example() {
	set, err := rules.LoadFiles("testdata/limits.yaml")
	if err != nil {
		log.Fatal(err) // every mistake, with its line and column
	}
	engine, err := rules.New(set, rules.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	resp, err := engine.Decide(context.Background(), &rules.Request{
		Domain: "edge",
		Descriptors: []rules.Descriptor{
			{Entries: []rules.Entry{{Key: "remote_address", Value: "192.0.2.7"}}},
			{Entries: []rules.Entry{{Key: "path", Value: "/login"},
				{Key: "remote_address", Value: "192.0.2.7"}}},
		},
	})
	if err != nil {
		log.Fatal(err) // could not decide: fail open or closed, as you choose
	}
	fmt.Println("allowed:", resp.Allowed())
	for _, s := range resp.Statuses {
		fmt.Println(s.Rule.Path, s.Limit, s.Remaining)
	}
	// Output:
	// allowed: true
	// remote_address 20 per minute 19
	// path=/login*,remote_address 5 per hour 4
}

// Use the strategies of your own limiter.
func ExampleStrategiesOf() {
	limiter, err := weir.New(weir.Config{MaxBuckets: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	set, err := rules.LoadFiles("testdata/limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	engine, err := rules.New(set, rules.Config{Strategies: rules.StrategiesOf(limiter)})
	fmt.Println(engine.Set().Len(), err)
	// Output: 2 <nil>
}

// Keep an engine's rules equal to those of a file.
func ExampleWatch() {
	set, err := rules.LoadFiles("testdata/limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	engine, err := rules.New(set, rules.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	ctx, stop := context.WithCancel(context.Background())
	rules.Watch(ctx, []string{"testdata/limits.yaml"}, func(set *rules.Set, err error) {
		if err == nil {
			err = engine.Swap(set) // keeps the counters
		}
		if err != nil {
			log.Print("rules refused; the old ones stay in force: ", err)
		}
		fmt.Println(engine.Set().Len(), "rules")
		stop() // a service calls Watch in a goroutine and stops when it ends
	})
	// Output: 2 rules
}

// Explain says which rule limits a descriptor, and why.
func ExampleSet_Explain() {
	set, err := rules.LoadFiles("testdata/limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	entries, err := rules.ParseEntries("path=/logout,remote_address=192.0.2.7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(set.Explain("edge", entries))
	// Output:
	// domain edge
	//   path=/logout: no match among the 1 value of this key
	// no limit: no descriptor matches
}
