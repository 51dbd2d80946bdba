package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"sync"
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
	var file bytes.Buffer // for a file, see SaveFile
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

func ExampleLimiter_SaveFile() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "counts")
	day := (24 * time.Hour).Milliseconds()

	start := func() *weir.Limiter {
		limiter, err := weir.New(weir.Config{})
		if err != nil {
			log.Fatal(err)
		}
		if err := limiter.LoadFile(name); errors.Is(err, fs.ErrNotExist) {
			fmt.Println("first start")
		} else if err != nil {
			log.Fatal(err)
		}
		return limiter
	}
	limiter := start()
	if _, err := limiter.CheckRate("10.0.0.7", day, 1); err != nil {
		log.Fatal(err)
	}
	if err := limiter.SaveFile(name); err != nil {
		log.Fatal(err)
	}
	limiter.Close()

	restarted := start()
	defer restarted.Close()
	res, err := restarted.CheckRate("10.0.0.7", day, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.State)
	// Output:
	// first start
	// Deny
}

func ExampleLimiter_Checkpoint() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "counts")

	serve := func() weir.State {
		limiter, err := weir.New(weir.Config{})
		if err != nil {
			log.Fatal(err)
		}
		defer limiter.Close()
		if err := limiter.LoadFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Fatal(err) // the next save would replace the file
		}
		ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
		var saving sync.WaitGroup
		saving.Go(func() {
			warn := func(err error) { log.Print(err) }
			if err := limiter.Checkpoint(ctx, name, time.Minute, warn); err != nil {
				log.Print(err)
			}
		})
		res, err := limiter.CheckRate("10.0.0.7", (24 * time.Hour).Milliseconds(), 1)
		if err != nil {
			log.Print(err)
		}
		stop()
		saving.Wait()
		return res.State
	}
	fmt.Println(serve(), serve())
	// Output: Allow Deny
}
