// Command fake runs code that takes a limit with one that denies everybody, as its unit test would.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/weirtest"
)

func greet(perUser *weir.Limit, user string) string {
	out, err := perUser.Take(context.Background(), user, 1)
	switch {
	case err != nil:
		return "sorry, " + user
	case !out.Allowed():
		return "later, " + user + ": in " + out.Wait.Round(time.Minute).String()
	}
	return "hello, " + user
}

func main() {
	fmt.Println(greet(weirtest.DenyAll().Limit(1, time.Minute), "ann"))
	fmt.Println(greet(new(weirtest.Fake).Limit(1, time.Minute), "ann"))
}
