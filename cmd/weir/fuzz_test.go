package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/report"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// FuzzReplay checks that, for any log, replay counts every line once and every form of the report
// can be written.
func FuzzReplay(f *testing.F) {
	f.Add(`1.1.1.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1` + "\noops\n" +
		`{"ts":1e9,"request":{"remote_ip":"\u001b"}}`)
	f.Add(`a - - [01/Jan/1900:00:00:00 +2359] "GET /` + "\xff\x1b" + ` HTTP/1.1"` + "\n" +
		`a - - [31/Dec/2099:23:59:60 -2359] "GET / HTTP/1.1"`)
	f.Add(`{"ts":0.5,"duration":9,"request":{"remote_ip":"a","uri":"/"}}` + "\n" +
		`{"ts":0,"request":{"remote_ip":"a","uri":"/"}}`)
	rules, err := rule.Cross([]string{"1/1s", "1/1s,2/3s"}, rule.Strategies, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, log string) {
		for _, magic := range []string{"\x1f", "\x28\xb5\x2f\xfd", "BZh"} {
			if strings.HasPrefix(log, magic) {
				return // its lines are others
			}
		}
		lines := uint64(strings.Count(log, "\n"))
		if log != "" && !strings.HasSuffix(log, "\n") {
			lines++
		}
		r, err := replay.Run(replay.Config{Files: []string{replay.Stdin}, Stdin: strings.NewReader(log),
			Rules: rules, By: replay.ByIPPath, MaxBuckets: 1 << 16, Top: 10,
			Suggest: &replay.Suggest{Strategies: rule.Strategies, Durations: replay.Durations, DenyAtMost: 0.1}})
		if err != nil {
			if !errors.As(err, new(*replay.InputError)) {
				t.Fatal(err)
			}
			return
		}
		if r.Lines != r.Requests+r.Unkeyed+r.Unreadable.Count || r.Lines != lines {
			t.Fatalf("%d lines, of them %d requests, %d without key, %d unreadable", lines, r.Requests,
				r.Unkeyed, r.Unreadable.Count)
		}
		var text, html, all bytes.Buffer
		report.Text(&text, r, screen.Terminal{})
		if err := errors.Join(report.HTML(&html, r), report.JSON(&all, r)); err != nil {
			t.Fatal(err)
		}
		for _, out := range []string{text.String(), html.String()} {
			if strings.ContainsFunc(out, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
				t.Fatalf("a control character got through: %q", out)
			}
		}
	})
}
