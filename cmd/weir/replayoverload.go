package main

import (
	"fmt"
	"os"
	"time"
)

// notOverload are the flags that a replay has, and --overload has not.
var notOverload = []string{"limit", "strategy", "burst", "follow", "rules", "compare", "replicas",
	"skew", "suggest", "by-route", "rules-out", "count-if"}

// learn is the goal of --overload without a value, as for weir proxy.
const learn = "learn"

// goal is the value of --overload.
type goal struct {
	time.Duration // 0: it is learnt
	given         bool
}

// String implements pflag.Value.
func (g *goal) String() string {
	if g.Duration == 0 {
		return ""
	}
	return g.Duration.String()
}

// Set implements pflag.Value.
func (g *goal) Set(text string) (err error) {
	g.Duration, g.given = 0, true
	if text == learn {
		return nil
	}
	g.Duration, err = time.ParseDuration(text)
	if err != nil || g.Duration <= 0 {
		return fmt.Errorf("want how long a request may take, such as 300ms, or no value, not %q", text)
	}
	return nil
}

// Type implements pflag.Value.
func (g *goal) Type() string { return "goal" }

// isGoal reports whether the name of a file that does not exist is a duration.
func isGoal(name string) bool {
	_, err := time.ParseDuration(name)
	_, missing := os.Stat(name)
	return err == nil && missing != nil
}
