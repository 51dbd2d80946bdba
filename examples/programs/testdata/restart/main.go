// Command restart keeps its counts in a file, from one run to the next.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/weirgo/weir"
)

func main() {
	for range 2 { // two runs
		limiter, err := weir.New(weir.Config{})
		if err != nil {
			panic(err)
		}
		if err := limiter.LoadFile("counts"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			panic(err)
		}
		perUser := limiter.SlidingLog().Limit(3, time.Hour).Named("per user")
		fmt.Println(perUser.Allow("ann"), perUser.Allow("ann"))
		fmt.Println(errors.Join(limiter.SaveFile("counts"), limiter.Close()))
	}
	_ = os.Remove("counts")
}
