package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/report"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

const (
	lookEvery = 200 * time.Millisecond // at a file that is followed
	drawEvery = time.Second
	maxLine   = 1 << 20 // the end of a longer one is not waited for
)

// notFollowed are the flags that a replay has, and --follow has not.
var notFollowed = []string{"suggest", "by-route", "rules-out", "compare", "replicas",
	"html"}

// follow replays a log, and then what is written to it until ctx ends. On a terminal it shows the
// last minute and what fits of the report, every second; it prints the last one.
func (f *replayFlags) follow(
	ctx context.Context, cmd *cobra.Command, cfg replay.Config,
) error {
	if err := cli.Exclude("follow", cmd.Flags().Changed, notFollowed); err != nil {
		return err
	}
	switch {
	case slices.Contains(cfg.Files, replay.Stdin):
		return errors.New("--follow is for a file, not for the standard input")
	case len(cfg.Files) != 1:
		return errors.New("--follow follows one file")
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("--follow prints text or json, not %s", f.output)
	}
	of, err := replay.NewFollower(cfg)
	if err != nil {
		return classify(err)
	}
	defer of.Close()
	t := tail{name: cfg.Files[0]}
	defer t.close()
	_, terminal := screen.Of(cmd.OutOrStdout())
	draws, drawn := terminal && f.output == "text", time.Time{}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for warned := false; ; {
		if err := t.read(of.Add); err != nil {
			return classify(err)
		}
		if err := of.Nothing(); err != nil && !warned {
			warned = true
			fmt.Fprintf(cmd.ErrOrStderr(), "weir: %v; waiting for more\n", err)
		}
		if draws && time.Since(drawn) >= drawEvery {
			to, _ := screen.Of(cmd.OutOrStdout())
			if _, err := io.WriteString(cmd.OutOrStdout(), frame(of, to)); err != nil {
				return cli.Failure(err)
			}
			drawn = time.Now()
		}
		select {
		case <-ctx.Done():
			if err := t.end(of.Add); err != nil {
				return classify(err)
			}
			if of.Requests() > 0 {
				if err := f.write(cmd, of.Result()); err != nil {
					return cli.Failure(err)
				}
			}
			return cli.Interrupted(replay.ErrInterrupted)
		case <-ticker.C:
		}
	}
}

// frame returns what the terminal shows while a file is followed.
func frame(of *replay.Follower, to screen.Terminal) string {
	var b strings.Builder
	switch err := of.Nothing(); {
	case err != nil:
		fmt.Fprintf(&b, "%s; waiting for more\n", screen.Printable(err.Error()))
	case of.Requests() == 0:
		fmt.Fprintf(&b, "waiting for lines in %s\n", screen.Printable(of.File()))
	default:
		report.Frame(&b, of.Result(), to)
	}
	return "\x1b[H\x1b[2J" + to.Fit(b.String())
}

// tail reads a file that grows, and the one that takes its place under its name.
type tail struct {
	name     string
	file     *os.File // nil before the first read, and after the end of a file that was replaced
	replaced bool     // a file was
	offset   int64
	rest     []byte // a line that has no end yet
}

// read gives add the whole lines that were written since the last read. A file that is shorter than
// it was, and another one that has the name now, is read from its beginning by the next read.
func (t *tail) read(add func(lines []byte) error) error {
	if t.file == nil {
		file, err := os.Open(t.name)
		if t.replaced && errors.Is(err, fs.ErrNotExist) {
			return nil // the next one is not there yet
		}
		if err != nil {
			return err
		}
		t.file, t.offset = file, 0
	}
	for turned := false; ; {
		err := t.chunk(add)
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case turned: // and all of it is read
			t.close()
			t.replaced = true
			return t.end(add)
		case !t.turned():
			return nil
		default:
			turned = true
		}
	}
}

// end gives add the last line, if it has no end.
func (t *tail) end(add func(lines []byte) error) error {
	rest := t.rest
	t.rest = nil
	if len(rest) == 0 {
		return nil
	}
	return add(rest)
}

// chunk reads a part of the file.
func (t *tail) chunk(add func(lines []byte) error) error {
	part := make([]byte, 1<<20)
	n, err := t.file.ReadAt(part, t.offset)
	t.offset += int64(n)
	t.rest = append(t.rest, part[:n]...)
	end := bytes.LastIndexByte(t.rest, '\n') + 1
	if end == 0 && len(t.rest) > maxLine {
		end = len(t.rest)
	}
	if end > 0 {
		if err := add(t.rest[:end]); err != nil {
			return err
		}
		t.rest = bytes.Clone(t.rest[end:])
	}
	return err
}

// turned reports whether the file was cut, or another one, or none, has its name now.
func (t *tail) turned() bool {
	open, err := t.file.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(t.name)
	return err != nil || open.Size() < t.offset || !os.SameFile(open, named)
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close() // it was only read
		t.file = nil
	}
}
