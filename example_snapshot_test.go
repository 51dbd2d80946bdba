package weir_test

import (
	"bytes"
	"fmt"
	"log"
	"time"

	"github.com/weirgo/weir"
)

func ExampleLimiter_Save() {
	day := (24 * time.Hour).Milliseconds()
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := limiter.CheckRate("10.0.0.7", day, 1); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // for a file, write to another name, sync and rename
	if err := limiter.Save(&file); err != nil {
		log.Fatal(err)
	}
	limiter.Close()

	restarted, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer restarted.Close()
	if err := restarted.Load(&file); err != nil {
		log.Print(err) // starts without counts; keep the file
	}
	res, err := restarted.CheckRate("10.0.0.7", day, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.State)
	// Output: Deny
}
