package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// TestATailReadsWhatIsWritten writes to a file in pieces, and has it rotated and cut.
func TestATailReadsWhatIsWritten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "access.log")
	of, got := tail{name: name}, ""
	defer func() { of.close() }()
	read := func() {
		t.Helper()
		require.NoError(t, of.read(func(lines []byte) error {
			got += string(lines)
			return nil
		}))
	}
	write := func(text string) {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	assert.ErrorIs(t, of.read(nil), os.ErrNotExist, "there is none at the start")
	write("a\nb")
	read()
	write("b\nc\n")
	read()
	read()
	require.Equal(t, "a\nbb\nc\n", got)

	write("d\nd")
	read()
	require.Equal(t, "a\nbb\nc\nd\n", got, "the last line may go on")
	require.NoError(t, os.Rename(name, name+".1"))
	read() // the rest of the old file
	read() // there is no new one yet
	require.Equal(t, "a\nbb\nc\nd\nd", got, "it has ended")
	got = "a\nbb\nc\nd\n"
	long := strings.Repeat("x", 900_000) + "\n"
	write("e\n" + long)
	read()
	require.Equal(t, "a\nbb\nc\nd\ne\n"+long, got)

	got = ""
	require.NoError(t, os.Truncate(name, 0))
	write("f\n")
	read()
	read()
	assert.Equal(t, "f\n", got)
}

func TestFollowPrintsWhatThereIs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	line := `192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat(line, 9)+"nonsense\n"), 0o600))
	interrupted, stop := context.WithCancel(t.Context())
	stop()
	var errs bytes.Buffer
	follow := func(args ...string) (string, error) {
		var out bytes.Buffer
		f := new(replayFlags)
		cmd := f.command()
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		require.NoError(t, cmd.ParseFlags(append([]string{"--follow"}, args...)))
		cfg, err := f.config(cmd.Flags().Args())
		require.NoError(t, err)
		err = f.follow(interrupted, cmd, cfg)
		return out.String(), err
	}
	text, err := follow("--limit", "2/1m", file)
	assert.ErrorIs(t, err, replay.ErrInterrupted)
	assert.Contains(t, text, "9 requests by 1 caller\n")
	assert.Contains(t, text, "denied   7 of 9 requests (77.8 %)")
	assert.Contains(t, text, "192.0.2.1         9       7  77.8 %  2026-11-20 10:00:00")
	assert.NotContains(t, text, "\x1b")
	text, _ = follow(file)
	assert.Regexp(t, `last minute, to 10:00:0\d: 9 requests \(0.15/s\) by 1 caller\n\n`+
		`  busiest, last minute  requests  share  5xx\n  192.0.2.1                    9  100 %    0\n`, text)
	assert.NotContains(t, text, "denied", "there is no limit")
	text, _ = follow("--limit", "2/1m", "-o", "json", file)
	assert.Regexp(t, `"last_minute": \{\s+"to": "2026-11-20T10:00:0\dZ",\s+"requests": 9,`, text)
	assert.Contains(t, text, `"denied": 7,`)
	assert.Contains(t, text, `"empty_files": [],`)
	assert.Contains(t, text, `"late": 0,`)

	limits := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(limits, []byte("domain: d\nrate_limits: [{actions: [{remote_address: {}}]}]\n"+
		"descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 3}}]\n"), 0o600))
	text, err = follow("--rules", limits, file)
	assert.ErrorIs(t, err, replay.ErrInterrupted)
	assert.Contains(t, text, "all rules\n  denied   6 of 9 requests (66.7 %)")
	assert.Contains(t, text, "192.0.2.1         9       6  66.7 %  2026-11-20 10:00:00")

	whole := filepath.Join(t.TempDir(), "whole.log")
	require.NoError(t, os.WriteFile(whole, []byte(line+strings.TrimSuffix(line, "\n")), 0o600))
	text, _ = follow("--limit", "2/1m", whole)
	assert.Contains(t, text, "2 requests by 1 caller\n", "the last line has no end")
	none := filepath.Join(t.TempDir(), "none.log")
	require.NoError(t, os.WriteFile(none, []byte("a\nb\n"), 0o600))
	_, err = follow("--limit", "2/1m", none)
	assert.ErrorIs(t, err, replay.ErrInterrupted)
	assert.Contains(t, errs.String(), "none.log: none of its 2 lines is of an access log; line 1: ")
	for want, args := range map[string][]string{
		"--suggest and --follow exclude": {"--suggest", "--limit", "1/1m", file},
		"follows one file":               {"--limit", "1/1m", file, file}, "not for the standard input": {"--limit", "1/1m", "-"}, "text or json, not html": {"--limit", "1/1m", "-o", "html", file},
		"no such file": {"--limit", "1/1m", file + ".none"},
	} {
		_, err := follow(args...)
		assert.ErrorContains(t, err, want)
	}
}

// TestAFrameFitsTheTerminal follows a log by two limits, whose report has over 40 lines.
func TestAFrameFitsTheTerminal(t *testing.T) {
	follow := func() *replay.Follower {
		f := new(replayFlags)
		cmd := f.command()
		require.NoError(t, cmd.ParseFlags([]string{"--follow", "--limit", "2/1m", "--limit", "3/1h",
			"--status", "200", "access.log"}))
		cfg, err := f.config(cmd.Flags().Args())
		require.NoError(t, err)
		of, err := replay.NewFollower(cfg)
		require.NoError(t, err)
		t.Cleanup(of.Close)
		return of
	}
	const line = `192.0.2.%d - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" %d 5` + "\n"
	to := screen.Terminal{Width: 80, Height: 24}
	of := follow()
	assert.Equal(t, "\x1b[H\x1b[2Jwaiting for lines in access.log\n", frame(of, to))
	require.NoError(t, of.Add([]byte(fmt.Sprintf(line, 1, 404))))
	assert.Equal(t, "\x1b[H\x1b[2Jthe only request is not one of those asked for; waiting for more\n",
		frame(of, to))
	for i := range 90 {
		require.NoError(t, of.Add([]byte(fmt.Sprintf(line, i%10, 200))))
	}
	got := frame(of, to)
	assert.Regexp(t, `^\x1b\[H\x1b\[2J90 requests by 10 callers, from 2026-11-20 10:00:00 UTC\n`+
		`last minute, to 10:00:0\d: 90 requests \(1.5/s\) by 10 callers, 77.8 % denied\n(.*\n){20}… lines left out: 2\d\n$`, got)
	assert.Contains(t, got, "192.0.2.8                    9  10.0 %       7    0", "the busiest")
	assert.Regexp(t, "3/1h +sliding window +30 +60", got, "what both limits deny")
	to.Height = 100
	assert.Contains(t, frame(of, to), "\nnote: 1 request was not asked for and left out\n")

	to.Height, of = 24, follow()
	for range 90 {
		require.NoError(t, of.Add([]byte(fmt.Sprintf("10.0.0.1"+line[len("192.0.2.%d"):], 200))))
	}
	got = frame(of, to)
	assert.Contains(t, got, "\nnote: these callers are probably not your clients")
	assert.LessOrEqual(t, len(regexp.MustCompile(`(?m)^\S.*$`).FindAllString(got, -1)), 6, "lines of prose: %s", got)

	of = follow()
	require.NoError(t, of.Add([]byte("\x1b[2J\n")))
	assert.Equal(t, "\x1b[H\x1b[2Jaccess.log: its only line is not of an access log; line 1: neither the "+
		"common or combined format nor JSON; --format and --log-format name others: \"\\x1b[2J\"; "+
		"waiting for more\n", frame(of, to))
}
